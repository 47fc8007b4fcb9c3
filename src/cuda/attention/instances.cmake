# SPDX-License-Identifier: Apache-2.0
#
# One small .cu file for each instance of the decode kernel, so that they compile in parallel; the
# list is also the table that instances.cc chooses from.

# Every recommended preset for every shape and option.
function(kvarn_all_decode_lines out)
  set(lines "")
  foreach(dims "64, 64" "80, 80" "96, 96" "112, 112" "128, 128" "192, 192" "192, 128" "256, 256")
    foreach(bits "4, 4" "4, 2" "3, 3" "3, 2" "2, 2" "8, 4" "8, 8")
      foreach(group 64 128)
        foreach(columns 1 2)
          foreach(general false true)
            list(APPEND lines "KVARN_DECODE(${dims}, ${bits}, ${group}, ${columns}, ${general})")
          endforeach()
        endforeach()
      endforeach()
    endforeach()
  endforeach()
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()

# Writes the files and the list; `out` gets the paths of the files.
function(kvarn_decode_instances out)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/decode)
  set(default ${CMAKE_CURRENT_SOURCE_DIR}/attention/decode_instances.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${default})
  if(KVARN_CUDA_INSTANCES STREQUAL "all")
    kvarn_all_decode_lines(lines)
  elseif(KVARN_CUDA_INSTANCES STREQUAL "default")
    file(STRINGS ${default} lines REGEX "^KVARN_DECODE")
  else()
    message(FATAL_ERROR "KVARN_CUDA_INSTANCES is '${KVARN_CUDA_INSTANCES}'; "
                        "allowed: default, all")
  endif()
  list(JOIN lines "\n" table)
  file(CONFIGURE OUTPUT ${folder}/decode_instances.def CONTENT "${table}\n" @ONLY)
  set(files "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "\\((.*), ([a-z]+)\\)" matched "${line}")
    set(SHAPE ${CMAKE_MATCH_1})
    set(GENERAL ${CMAKE_MATCH_2})
    string(REPLACE ", " "_" NAME "${SHAPE}, ${GENERAL}")
    configure_file(attention/instance.cu.in ${folder}/decode_${NAME}.cu @ONLY)
    list(APPEND files ${folder}/decode_${NAME}.cu)
  endforeach()
  set(${out} ${files} PARENT_SCOPE)
endfunction()
