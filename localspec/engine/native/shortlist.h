// The outputs of a product that somebody wants, where that are not all.
//
// A draft model's head tells of every token of a vocabulary, most of which no text has. Somebody who knows
// which it may have says so (localspec_rows_shortlist), and no others are computed (Zhao et al., 2025,
// "FR-Spec", arXiv 2502.14856). They read UNSAID, which is less than any number and still is one.

#pragma once

#include "ggml.h"

#include <cstdint>
#include <algorithm>

struct Shortlist {
    static constexpr int RUN = 16;  // outputs that are wanted or not, together
    static constexpr float UNSAID = -1e30f;

    const int32_t * runs;  // in order; nullptr where all are wanted
    int count;

    int run(int i) const { return runs ? runs[i] : i; }

    // A thread's share of what is not going to be computed, and of what is: the latter is overwritten.
    void silence(ggml_tensor * dst, int thread, int threads) const {
        if (!runs) return;
        const int64_t from = dst->ne[0] * thread / threads, to = dst->ne[0] * (thread + 1) / threads;
        for (int64_t row = 0; row < dst->ne[1]; ++row) {
            auto * out = reinterpret_cast<float *>(static_cast<char *>(dst->data) + row * dst->nb[1]);
            std::fill(out + from, out + to, UNSAID);
        }
    }
};

// That of a product with so many outputs (rows.cpp).
Shortlist localspec_wanted(int64_t outputs);
