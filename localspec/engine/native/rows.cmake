# Puts LocalSpec's kernels into ggml's CPU library, in front of llama.cpp's own functions of
# the same names. CMAKE_PROJECT_ggml_INCLUDE names this file; it acts when ggml's directory is done.

set(LOCALSPEC_NATIVE "${CMAKE_CURRENT_LIST_DIR}")

# In `file`, which they replace, llama.cpp's functions get a suffix.
function(localspec_rename file suffix)
    get_target_property(home ggml-cpu SOURCE_DIR)
    list(TRANSFORM ARGN REPLACE "(.+)" "\\1=\\1_${suffix}")
    set_property(
        SOURCE "${home}/ggml-cpu/${file}" TARGET_DIRECTORY ggml-cpu
        APPEND PROPERTY COMPILE_DEFINITIONS ${ARGN})
endfunction()

function(localspec_rows)
    foreach(file amx packing rows)
        target_sources(ggml-cpu PRIVATE "${LOCALSPEC_NATIVE}/${file}.cpp")
    endforeach()
    # A product and a sum stay two operations where they are written as two.
    set_property(
        SOURCE "${LOCALSPEC_NATIVE}/rows.cpp" TARGET_DIRECTORY ggml-cpu
        APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=off)
    localspec_rename(amx/mmq.cpp tiles ggml_backend_amx_mul_mat ggml_backend_amx_desired_wsize)
    localspec_rename(amx/amx.cpp stock ggml_backend_amx_buffer_type)
    localspec_rename(repack.cpp stock ggml_backend_cpu_repack_buffer_type)
    localspec_rename(traits.cpp stock ggml_cpu_extra_compute_forward ggml_cpu_extra_work_size)
endfunction()

cmake_language(DEFER CALL localspec_rows)
