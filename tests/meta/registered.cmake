# SPDX-License-Identifier: Apache-2.0
#
# Every test file below this folder is named in a CMakeLists.txt: none is forgotten.
#   cmake -DTESTS=<tests folder> -P registered.cmake
file(GLOB_RECURSE files RELATIVE ${TESTS} ${TESTS}/*_test.cc)
file(GLOB_RECURSE lists ${TESTS}/CMakeLists.txt)
set(text "")
foreach(list IN LISTS lists)
  file(READ ${list} part)
  string(APPEND text "${part}")
endforeach()
list(LENGTH files count)
if(count LESS 10)
  message(FATAL_ERROR "found only ${count} test files below ${TESTS}")
endif()
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  string(FIND "${text}" "${name}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${file} is in no CMakeLists.txt, so it never runs")
  endif()
endforeach()
message("${count} test files are registered")
