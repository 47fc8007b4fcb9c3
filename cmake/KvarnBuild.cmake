# SPDX-License-Identifier: Apache-2.0
#
# Settings that every target of the project shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(kvarn_warnings INTERFACE)
target_compile_options(kvarn_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wsign-conversion>)
if(KVARN_WERROR)
  target_compile_options(kvarn_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
