# KV cells that take memory when they are used, in llama.cpp's llama_kv_cache.
#
# A cache is cleared when it is made, for no number may be NaN where attention looks past what it masks.
# So all of its memory is touched at once: 8 s for 131,072 cells of a 1.5B model, in which nobody is
# answered. On Linux pages that are given back come again as zeros, each when it is first touched. So a
# cache on the host may be made as large as it can become, and never has to grow.
#
# Copies of sequences, too: with all of their cells.

function(localspec_cells)
    localspec_edit(src/llama-kv-cache.cpp [[
static bool ggml_is_power_of_2(int n) {
]] [[
// The name by which LocalSpec sees that copies of sequences have all of their cells.
extern "C" LLAMA_API int localspec_copies(void);

int localspec_copies(void) {
    return 1;
}

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

// The name by which LocalSpec sees that this library has this, where it works.
extern "C" LLAMA_API int localspec_cells(void);

int localspec_cells(void) {
#ifdef __linux__
    return 1;
#else
    return 0;
#endif
}

// LocalSpec: zeros without touching memory, where the system has them
static void localspec_clear(ggml_backend_buffer_t buffer) {
#ifdef __linux__
    if (ggml_backend_buffer_get_type(buffer) == ggml_backend_cpu_buffer_type()) {
        char * const begin = (char *) ggml_backend_buffer_get_base(buffer);
        const size_t size  = ggml_backend_buffer_get_size(buffer);
        const size_t page  = sysconf(_SC_PAGESIZE);
        const size_t first = (page - (uintptr_t) begin % page) % page;
        const size_t whole = size > first ? (size - first) / page * page : 0;
        if (whole > 0 && madvise(begin + first, whole, MADV_DONTNEED) == 0) {
            memset(begin, 0, first);
            memset(begin + first + whole, 0, size - first - whole);
            return;
        }
    }
#endif
    ggml_backend_buffer_clear(buffer, 0);
}

static bool ggml_is_power_of_2(int n) {
]])
    localspec_edit(src/llama-kv-cache.cpp [[
        ggml_backend_buffer_clear(buf, 0);
        ctxs_bufs]] [[
        localspec_clear(buf);
        ctxs_bufs]])
    localspec_edit(src/llama-kv-cache.cpp [[
            ggml_backend_buffer_clear(buf.get(), 0);
]] [[
            localspec_clear(buf.get());
]])
    # What forgets a sequence looks at the cells that are used, not at all there could be.
    localspec_edit(src/llama-kv-cache.cpp [[
        for (uint32_t i = 0; i < cells.size(); ++i) {
            if (!cells.pos_in(i, p0, p1)) {
                continue;
            }

            if (cells.seq_has(i, seq_id) && cells.seq_rm(i, seq_id)) {
]] [[
        const uint32_t localspec_used = cells.used_max_p1();
        for (uint32_t i = 0; i < localspec_used; ++i) {
            if (!cells.pos_in(i, p0, p1)) {
                continue;
            }

            if (cells.seq_has(i, seq_id) && cells.seq_rm(i, seq_id)) {
]])
    # A copy of a sequence has no cells that its last token does not see through a sliding window. Where
    # all are kept (swa_full) an earlier token may be the last one again, and it sees them.
    localspec_edit(src/llama-kv-cache.cpp [[
                const bool is_masked = llama_hparams::is_masked_swa(n_swa, swa_type, cells.pos_get(i), cells.seq_pos_max(seq_id));
]] [[
                const bool is_masked = false;
]])
endfunction()
