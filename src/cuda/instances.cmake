# SPDX-License-Identifier: Apache-2.0
#
# One small .cu file for each instance of a kernel, so that they compile in parallel; the list is
# also the table that the kernel's instances.cc chooses from.

set(KVARN_ALL_HEAD_DIMS "64, 64" "80, 80" "96, 96" "112, 112" "128, 128" "192, 192" "192, 128"
                        "256, 256")

# Every recommended preset for every shape; `groups` and `options` narrow it.
function(kvarn_decode_lines out groups options)
  set(lines "")
  foreach(dims IN LISTS KVARN_ALL_HEAD_DIMS)
    foreach(bits "4, 4" "4, 2" "3, 3" "3, 2" "2, 2" "8, 4" "8, 8")
      foreach(group ${groups})
        # Many query rows need dims of whole panels (src/cuda/attention/wide).
        set(columns 1 2)
        if(NOT "${dims}" MATCHES "80|96|112|192, 192")
          list(APPEND columns 4 8)
        endif()
        foreach(columns IN LISTS columns)
          foreach(general ${options})
            list(APPEND lines "KVARN_DECODE(${dims}, ${bits}, ${group}, ${columns}, ${general})")
          endforeach()
        endforeach()
      endforeach()
    endforeach()
  endforeach()
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()

function(kvarn_prefill_lines out groups)
  set(lines "")
  foreach(dims IN LISTS KVARN_ALL_HEAD_DIMS)
    foreach(group ${groups})
      list(APPEND lines "KVARN_PREFILL(${dims}, ${group})")
    endforeach()
  endforeach()
  set(${out} "${lines}" PARENT_SCOPE)
endfunction()

# Writes the files and the list of `kernel` (decode or prefill), whose <kernel>_instances.def and
# instance.cu.in lie in `folder`, into the build folder <kernel>; `out` gets the paths of the files.
function(kvarn_instances out kernel folder)
  set(to ${CMAKE_CURRENT_BINARY_DIR}/${kernel})
  set(default ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${kernel}_instances.def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${default})
  if(KVARN_CUDA_INSTANCES STREQUAL "all")
    cmake_language(CALL kvarn_${kernel}_lines lines "64;128" "false;true")
  elseif(KVARN_CUDA_INSTANCES STREQUAL "planes")
    cmake_language(CALL kvarn_${kernel}_lines lines 128 true)
  elseif(KVARN_CUDA_INSTANCES STREQUAL "default")
    file(STRINGS ${default} lines REGEX "^KVARN_")
  else()
    message(FATAL_ERROR "KVARN_CUDA_INSTANCES is '${KVARN_CUDA_INSTANCES}'; "
                        "allowed: default, planes, all")
  endif()
  list(JOIN lines "\n" table)
  file(CONFIGURE OUTPUT ${to}/${kernel}_instances.def CONTENT "${table}\n" @ONLY)
  set(files "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "\\((.*)\\)" matched "${line}")
    set(ARGUMENTS ${CMAKE_MATCH_1})
    string(REPLACE ", " "_" NAME "${ARGUMENTS}")
    configure_file(${folder}/instance.cu.in ${to}/${kernel}_${NAME}.cu @ONLY)
    list(APPEND files ${to}/${kernel}_${NAME}.cu)
  endforeach()
  set(${out} ${files} PARENT_SCOPE)
endfunction()
