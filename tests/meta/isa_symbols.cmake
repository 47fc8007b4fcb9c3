# SPDX-License-Identifier: Apache-2.0
#
# The objects of one instruction-set level must not define functions that the linker may merge with
# another object's (weak or COMDAT): it could pick the AVX-512 copy for everyone.
#   cmake -DNM=nm -DLIBRARY=libkvarn.a -P isa_symbols.cmake
execute_process(COMMAND ${NM} ${LIBRARY} OUTPUT_VARIABLE text RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${NM} ${LIBRARY} failed")
endif()
string(REPLACE "\n" ";" lines "${text}")
set(member "")
set(seen 0)
set(shared "")
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ]+\\.o):$")
    set(member ${CMAKE_MATCH_1})
    if(member MATCHES "^isa_(scalar|avx2|avx512|neon)\\.")
      math(EXPR seen "${seen} + 1")
    endif()
  elseif(member MATCHES "^isa_" AND line MATCHES "^[0-9a-f]+ ([WVu]) (.*)$")
    # DW.ref.*: a pointer for unwinding (sanitizers add some), the same in every object and no code.
    if(NOT CMAKE_MATCH_2 MATCHES "^DW[.]ref[.]")
      list(APPEND shared "${member}: ${CMAKE_MATCH_1} ${CMAKE_MATCH_2}")
    endif()
  endif()
endforeach()
if(NOT seen EQUAL 4)
  message(FATAL_ERROR "expected four isa_*.cc objects in ${LIBRARY}, found ${seen}")
endif()
if(shared)
  list(JOIN shared "\n  " shared)
  message(FATAL_ERROR "symbols that other objects may take over:\n  ${shared}")
endif()
message("no weak or COMDAT symbols in ${seen} objects")
