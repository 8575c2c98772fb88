# A graph, a scheduler and memory of its own for each row count, in llama.cpp's llama_context.
#
# A context keeps one graph for forwards with outputs. A forward of another row count than the last
# one builds and allocates it anew, and with CUDA the captured graph is lost: on an H100 that takes
# longer than the forward itself, and speculation changes its row count all the time. So every row
# count keeps its graph until it comes again. On a CPU alone a change costs
# too little to spend memory on it, so there are none there; LOCALSPEC_GRAPHS=1 or 0 in the environment
# decides otherwise.

function(localspec_graphs)
    localspec_edit(src/llama-context.h [[
    ggml_backend_sched_ptr sched;
]] [[
    ggml_backend_sched_ptr sched;

    // LocalSpec: graphs of row counts that are not in use; number 0 is for all counts without their own
    struct localspec_row_graph {
        ggml_backend_sched_ptr            sched;
        std::unique_ptr<llm_graph_result> graph;
        bool                              active = false;
    };
    std::array<localspec_row_graph, 33> localspec_row_graphs;
    uint32_t localspec_row_graph_in_use = 0;
    void localspec_use_row_graph(uint32_t rows);
    void localspec_drop_row_graphs();
]])
    localspec_edit(src/llama-context.cpp [[
llm_graph_result * llama_context::process_ubatch(]] [[
// LocalSpec: whether row counts have graphs of their own
static bool localspec_wanted(bool on_device) {
    static const char * said = getenv("LOCALSPEC_GRAPHS");
    return said ? said[0] != '0' : on_device;
}

// LocalSpec: the graph in use is in `sched`, `gf_res_prev[1]` and `gf_res_prev_active`.
void llama_context::localspec_use_row_graph(uint32_t rows) {
    if (rows == localspec_row_graph_in_use) {
        return;
    }
    auto & old  = localspec_row_graphs[localspec_row_graph_in_use];
    auto & next = localspec_row_graphs[rows];
    if (!next.sched) {
        next.sched.reset(ggml_backend_sched_new(backend_ptrs.data(), backend_buft.data(),
            backend_ptrs.size(), gf_res_reserve->get_max_nodes(), false, cparams.op_offload));
    }
    old.active = gf_res_prev_active && gf_res_prev_active == gf_res_prev[1].get();
    old.graph  = std::move(gf_res_prev[1]);
    old.sched  = std::move(sched);

    sched              = std::move(next.sched);
    gf_res_prev[1]     = std::move(next.graph);
    gf_res_prev_active = next.active ? gf_res_prev[1].get() : nullptr;
    localspec_row_graph_in_use = rows;
}

// LocalSpec: use the first graph and free the others. Nothing may be running.
void llama_context::localspec_drop_row_graphs() {
    localspec_use_row_graph(0);
    for (auto & graph : localspec_row_graphs) {
        graph = {};
    }
}

llm_graph_result * llama_context::process_ubatch(]])
    localspec_edit(src/llama-context.cpp [[
    auto * res = get_gf_res_prev();
    auto * gf  = res->get_gf();
]] [[
    const bool own = localspec_wanted(backend_ptrs.size() > 1) && !cparams.pipeline_parallel;
    localspec_use_row_graph(
        own && n_outputs > 0 && ubatch.n_tokens < localspec_row_graphs.size() ? ubatch.n_tokens : 0);

    auto * res = get_gf_res_prev();
    auto * gf  = res->get_gf();
]])
    # What reserves anew, changes the memory's layout or ends begins with the first graph.
    localspec_edit(src/llama-context.cpp [[
    synchronize();

    const int64_t t_start_us = ggml_time_us();

    const uint32_t n_seqs = cparams.n_seq_max;
]] [[
    synchronize();
    if (sched) {
        localspec_drop_row_graphs();
    }

    const int64_t t_start_us = ggml_time_us();

    const uint32_t n_seqs = cparams.n_seq_max;
]])
    localspec_edit(src/llama-context.cpp [[
        // reset the previous graph results to make sure that they won't be reused
]] [[
        synchronize();
        localspec_drop_row_graphs();

        // reset the previous graph results to make sure that they won't be reused
]])
    localspec_edit(src/llama-context.cpp [[
    // wait for any pending asynchronous copies into the output buffers before they are freed
    synchronize();
]] [[
    // wait for any pending asynchronous copies into the output buffers before they are freed
    synchronize();
    if (sched) {
        localspec_drop_row_graphs();
    }
]])
    # The name by which LocalSpec sees that a library has this.
    localspec_edit(src/llama-context.cpp [[
llm_graph_result * llama_context::get_gf_res_reserve() const {
]] [[
extern "C" LLAMA_API int localspec_graphs(void);

int localspec_graphs(void) {
    return 1;
}

llm_graph_result * llama_context::get_gf_res_reserve() const {
]])
    # On a device attention covers 2048 cells at least: a graph is for one number of them, and with steps
    # of 256 every answer would begin with graphs of its own. What is masked costs next to nothing there.
    localspec_edit(src/llama-kv-cache.cpp [[
    const uint32_t n_pad_cur = std::max(n_pad, 256u);
]] [[
    const bool host = layers.empty() || !layers[0].k->buffer || ggml_backend_buffer_is_host(layers[0].k->buffer);
    const uint32_t n_pad_cur = std::max(n_pad, host ? 256u : 2048u);
]])
    # A captured graph is thrown away when it was not used for ten seconds: people read longer.
    localspec_edit(ggml/src/ggml-cuda/common.cuh [[
                if (time_now - it->second->last_used_time >= 10'000'000) {
]] [[
                if (time_now - it->second->last_used_time >= 600'000'000) {
]])
endfunction()
