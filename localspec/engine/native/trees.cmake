# Trees: rows of one sequence that do not each follow the row before them, in llama.cpp's llama_kv_cache.
#
# A node of a draft attends to its ancestors alone. Of two siblings, which have the same position, llama.cpp
# would show each to the other. Here the mask of a forward hides, from each row, those of the same forward
# and sequence that it does not follow; and cells can be forgotten of a forward's rows, not only from a
# position on. So a tree costs what a chain of as many rows does: no sequences beside the text's own.
#
# For memories that are such a cache, or two of them (sliding windows), with one stream. An architecture
# that reads the tokens before each row by position cannot tell siblings apart and has no trees.

function(localspec_trees)
    localspec_edit(src/llama-kv-cache.h [[
    // The stream holding seq_id's cells.
]] [[
    // LocalSpec: the rows of a tree; each follows that row of its sequence which stands so far before it,
    // and has this cell
    std::vector<int32_t>  localspec_back;
    std::vector<uint32_t> localspec_places;

    bool localspec_holds_trees() const;
    std::vector<uint32_t> localspec_others(llama_seq_id seq_id, int32_t row) const;
    void localspec_hide(ggml_tensor * mask, const llama_ubatch & ubatch) const;
    void localspec_keep_row(llama_seq_id seq_id, int32_t row);

    // The stream holding seq_id's cells.
]])
    localspec_edit(src/llama-kv-cache.cpp [[
bool llama_kv_cache::get_can_shift() const {
]] [=[
bool llama_kv_cache::localspec_holds_trees() const {
    return n_stream == 1 && !other && hparams.ple_n_heads == 0;
}

// LocalSpec: the cells of a sequence's rows in the latest forward but those of one and of all it follows
std::vector<uint32_t> llama_kv_cache::localspec_others(llama_seq_id seq_id, int32_t row) const {
    GGML_ASSERT(localspec_places.size() == localspec_back.size());

    std::vector<size_t> own;
    for (size_t i = 0; i < localspec_places.size(); ++i) {
        if (v_cells[0].seq_has(localspec_places[i], seq_id)) {
            own.push_back(i);
        }
    }

    std::vector<uint32_t> others;
    for (int32_t i = (int32_t) own.size() - 1; i >= 0; --i) {
        if (i == row) {
            row -= localspec_back[own[i]];
        } else {
            others.push_back(localspec_places[own[i]]);
        }
    }
    return others;
}

void llama_kv_cache::localspec_hide(ggml_tensor * mask, const llama_ubatch & ubatch) const {
    if (localspec_back.empty()) {
        return;
    }
    GGML_ASSERT(ubatch.n_tokens == localspec_places.size());

    std::vector<int32_t> rows(n_seq_max); // of each sequence so far
    for (uint32_t i = 0; i < ubatch.n_tokens; ++i) {
        const llama_seq_id seq_id = ubatch.seq_id[i][0];
        for (const uint32_t cell : localspec_others(seq_id, rows[seq_id]++)) {
            if (mask->type == GGML_TYPE_F16) {
                ((ggml_fp16_t *) mask->data)[i*mask->ne[0] + cell] = ggml_fp32_to_fp16(-INFINITY);
            } else {
                ((float *) mask->data)[i*mask->ne[0] + cell] = -INFINITY;
            }
        }
    }
}

void llama_kv_cache::localspec_keep_row(llama_seq_id seq_id, int32_t row) {
    for (const uint32_t cell : localspec_others(seq_id, row)) {
        if (v_cells[0].seq_rm(cell, seq_id)) {
            v_heads[0] = std::min(v_heads[0], cell);
        }
    }
}

static std::vector<llama_kv_cache *> localspec_caches(llama_memory_t memory) {
    if (auto * windowed = dynamic_cast<llama_kv_cache_iswa *>(memory)) {
        return {windowed->get_base(), windowed->get_swa()};
    }
    if (auto * whole = dynamic_cast<llama_kv_cache *>(memory)) {
        return {whole};
    }
    return {};
}

extern "C" {
LLAMA_API bool localspec_trees(llama_memory_t memory);
LLAMA_API void localspec_tree(llama_memory_t memory, const int32_t * back, int32_t rows);
LLAMA_API void localspec_keep(llama_memory_t memory, llama_seq_id seq_id, int32_t row);
}

// LocalSpec: whether forwards with this memory can be trees
bool localspec_trees(llama_memory_t memory) {
    const auto caches = localspec_caches(memory);
    return !caches.empty() && std::all_of(caches.begin(), caches.end(), [](const llama_kv_cache * cache) {
        return cache->localspec_holds_trees();
    });
}

// LocalSpec: the next forwards, each one ubatch of so many rows, are this tree; of no rows, they are none
void localspec_tree(llama_memory_t memory, const int32_t * back, int32_t rows) {
    for (auto * cache : localspec_caches(memory)) {
        cache->localspec_back.assign(back, back + rows);
        cache->localspec_places.clear();
    }
}

// LocalSpec: forget the sequence's rows of the latest forward but this one and all it follows
void localspec_keep(llama_memory_t memory, llama_seq_id seq_id, int32_t row) {
    for (auto * cache : localspec_caches(memory)) {
        cache->localspec_keep_row(seq_id, row);
    }
}

bool llama_kv_cache::get_can_shift() const {
]=])
    localspec_edit(src/llama-kv-cache.cpp [[
#include "llama-kv-cache.h"
]] [[
#include "llama-kv-cache.h"
#include "llama-kv-cache-iswa.h"
]])
    localspec_edit(src/llama-kv-cache.cpp [[
    kv->apply_ubatch(sinfos[i_cur], ubatches[i_cur]);
]] [[
    kv->apply_ubatch(sinfos[i_cur], ubatches[i_cur]);
    if (!kv->localspec_back.empty()) {
        kv->localspec_places = sinfos[i_cur].idxs[0];
    }
]])
    localspec_edit(src/llama-kv-cache.cpp [[
    kv->set_input_kq_mask(dst, ubatch, causal_attn);
]] [[
    kv->set_input_kq_mask(dst, ubatch, causal_attn);
    kv->localspec_hide(dst, *ubatch);
]])
    # A node may stand behind deeper ones.
    localspec_edit(src/llama-batch.cpp [[
                if (pos < cur_seq_pos[seq_id]) {
]] [[
                if (pos < cur_seq_pos[seq_id] && !batch.token) {
]])
endfunction()
