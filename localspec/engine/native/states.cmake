# States of exactly the rows that want logits, and the inputs of layers for every architecture.
#
# A context that shows states makes outputs of all rows, so that they could be had only where every row
# wants logits; a hybrid's memory is read otherwise then, and LFM2 has no logits at all. Here they are of
# the rows with logits, and nothing else changes. The input of a layer ("tap") is set by some graphs only, and one that is missing
# ends the process. Here every graph that names its layers' outputs has them, and a missing one is said.
# An EAGLE-3 head computes logits of all rows; here of those that want them.
#
# A forward may leave the model before its last layers, to its last norm and output: an early exit.

function(localspec_states)
    localspec_edit(src/llama-context.cpp [[
    const bool output_all   = cparams.embeddings;
]] [[
    const bool output_all   = cparams.embeddings && cparams.pooling_type != LLAMA_POOLING_TYPE_NONE;
]])
    localspec_edit(src/llama-graph.cpp [[
void llm_graph_context::cb(ggml_tensor * cur, const char * name, int il) const {
]] [[
void llm_graph_context::cb(ggml_tensor * cur, const char * name, int il) const {
    // LocalSpec: what a layer gives is what the next one is given
    if (il >= 0 && il + 1 < n_layer && strcmp(name, "l_out") == 0) {
        res->t_layer_inp[il + 1] = cur;
    }
]])
    localspec_edit(src/llama-graph.cpp [[
            if (embeddings_layer_inp[il]) {
                GGML_ASSERT(t_layer_inp[il] != nullptr && "layer input tensor is null");
                ggml_set_output(t_layer_inp[il]);
            }
]] [[
            if (embeddings_layer_inp[il] && t_layer_inp[il] != nullptr) {
                ggml_set_output(t_layer_inp[il]);
            }
]])
    localspec_edit(src/llama-context.cpp [[
        if (!t) {
            GGML_ABORT("layer input tensor not found");
        }
]] [[
        if (!t || t->ne[1] != (int64_t) n_tokens) {
            embd_layer_inp[il] = {nullptr, 0};  // LocalSpec: said by localspec_layer_input
            continue;
        }
]])
    localspec_edit(src/llama-context.cpp [[
        if (!embd_layer_inp[il].has_data()) {
            GGML_ABORT("output layer input buffer not allocated");
        }
]] [[
        if (!embd_layer_inp[il].has_data()) {
            continue;
        }
]])
    # A graph without hidden states for prediction layers, or with fewer than its rows, leaves none.
    localspec_edit(src/llama-context.cpp [[
        auto * t_h_nextn = cparams.embeddings_nextn ? res->get_h_nextn()  : nullptr;
]] [[
        auto * t_h_nextn = cparams.embeddings_nextn ? res->get_h_nextn()  : nullptr;
        if (!t_h_nextn || t_h_nextn->ne[1] < (cparams.embeddings_nextn_masked ? (int64_t) n_outputs : (int64_t) ubatch.n_tokens)) {
            t_h_nextn  = nullptr;
            embd_nextn = {nullptr, 0};
        }
]])
    # An offset below 0 is no prediction layer's; by it graphs are told apart already.
    localspec_edit(src/llama-graph.cpp [[
    n_layer          (hparams.n_layer()),
]] [[
    n_layer          ((int64_t) hparams.n_layer() + (params.cparams.nextn_layer_offset < 0 ? params.cparams.nextn_layer_offset : 0)),
]])
    # The names by which LocalSpec sees that a library has this.
    localspec_edit(src/llama-context.cpp [[
llm_graph_result * llama_context::get_gf_res_reserve() const {
]] [[
extern "C" {
LLAMA_API void          localspec_tap(llama_context * ctx, uint32_t layer);
LLAMA_API const float * localspec_layer_input(llama_context * ctx, uint32_t layer);
LLAMA_API void          localspec_show_next(llama_context * ctx);
LLAMA_API const float * localspec_next(llama_context * ctx);
LLAMA_API void          localspec_leave_early(llama_context * ctx, uint32_t layers);
}

// LocalSpec: from now on forwards do without so many of the last layers
void localspec_leave_early(llama_context * ctx, uint32_t layers) {
    ctx->set_nextn_layer_offset(-(int32_t) layers);
}

// LocalSpec: from now on forwards leave the input of this layer, or what prediction layers are given
void localspec_tap(llama_context * ctx, uint32_t layer) {
    ctx->set_embeddings_layer_inp(layer, true);
}

void localspec_show_next(llama_context * ctx) {
    ctx->set_embeddings_nextn(true, false);
}

// LocalSpec: of all rows of the latest forward, in their order; null where its graph has none
const float * localspec_layer_input(llama_context * ctx, uint32_t layer) {
    ctx->synchronize();
    return ctx->localspec_layer_input(layer);
}

const float * localspec_next(llama_context * ctx) {
    ctx->synchronize();
    return ctx->get_embeddings_nextn();
}

const float * llama_context::localspec_layer_input(uint32_t layer) {
    output_reorder();
    return layer < embd_layer_inp.size() ? embd_layer_inp[layer].data : nullptr;
}

llm_graph_result * llama_context::get_gf_res_reserve() const {
]])
    localspec_edit(src/llama-context.h [[
    float * get_embeddings_layer_inp(uint32_t lid);
]] [[
    float * get_embeddings_layer_inp(uint32_t lid);
    const float * localspec_layer_input(uint32_t layer);
]])
    localspec_edit(src/models/lfm2.cpp [[
    if (!cparams.embeddings) {
]] [[
    if (!cparams.embeddings || cparams.pooling_type == LLAMA_POOLING_TYPE_NONE) {
]])
    localspec_edit(src/models/eagle3.cpp [[
    cur = build_norm(cur,
            model.output_norm, NULL,
            LLM_NORM_RMS, -1);
    cb(cur, "result_norm", -1);
]] [[
    if (ggml_tensor * wanted = build_inp_out_ids()) {
        cur = ggml_get_rows(ctx0, cur, wanted);
    }

    cur = build_norm(cur,
            model.output_norm, NULL,
            LLM_NORM_RMS, -1);
    cb(cur, "result_norm", -1);
]])
endfunction()
