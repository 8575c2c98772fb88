# What LocalSpec edits in llama.cpp's own source: `graphs.cmake`, `cells.cmake`, `states.cmake` and
# `trees.cmake`.
#
# CMAKE_PROJECT_llama.cpp_INCLUDE names this file. It edits the unpacked source before that is compiled
# and stops the build where a place is not as it was. LocalSpec works without it.

function(localspec_edit file place edited)
    set(path "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    file(READ "${path}" text)
    string(FIND "${text}" "${place}" first)
    string(FIND "${text}" "${place}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
        message(FATAL_ERROR "LocalSpec knows another llama.cpp; not once in ${file}:\n${place}")
    endif()
    string(REPLACE "${place}" "${edited}" text "${text}")
    file(WRITE "${path}" "${text}")
endfunction()

include("${CMAKE_CURRENT_LIST_DIR}/graphs.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/cells.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/states.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/trees.cmake")

# A directory may be configured again, and then perhaps without this: what was edited is put back first.
foreach(file src/llama-context.h src/llama-context.cpp src/llama-graph.cpp src/llama-batch.cpp
        src/llama-kv-cache.h src/llama-kv-cache.cpp src/models/eagle3.cpp src/models/lfm2.cpp ggml/src/ggml-cuda/common.cuh)
    set(path "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    if(EXISTS "${path}.original")
        configure_file("${path}.original" "${path}" COPYONLY)
    else()
        configure_file("${path}" "${path}.original" COPYONLY)
    endif()
endforeach()
if(NOT LOCALSPEC_PLAIN)
    localspec_graphs()
    localspec_cells()
    localspec_states()
    localspec_trees()
endif()
