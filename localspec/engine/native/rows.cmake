# Puts rows.cpp into ggml's CPU library, in front of llama.cpp's own functions of the same names.
# CMAKE_PROJECT_ggml_INCLUDE names this file; it acts when ggml's directory is done.

set(LOCALSPEC_ROWS "${CMAKE_CURRENT_LIST_DIR}/rows.cpp")

function(localspec_rows)
    get_target_property(home ggml-cpu SOURCE_DIR)
    target_sources(ggml-cpu PRIVATE "${LOCALSPEC_ROWS}")
    set_property(
        SOURCE "${home}/ggml-cpu/amx/mmq.cpp" TARGET_DIRECTORY ggml-cpu
        APPEND PROPERTY COMPILE_DEFINITIONS
        ggml_backend_amx_mul_mat=ggml_backend_amx_mul_mat_tiles
        ggml_backend_amx_desired_wsize=ggml_backend_amx_desired_wsize_tiles)
endfunction()

cmake_language(DEFER CALL localspec_rows)
