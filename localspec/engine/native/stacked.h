// Products of one matrix by rows in batches: one product of all these rows.
//
// llama.cpp stacks the rows of several sessions in further dimensions (ne2, ne3) where each of them has as
// many; a matrix of weights is the same for all of them. Of its packed layouts AMX reads such a matrix as a
// batch of matrices and writes outside of the result, repack takes three dimensions at most, and both read
// rows as if they lay one behind the other. Seen as one product of ne1 * ne2 * ne3 rows that lie so, each
// of them is right. Facts: ggml_batch_offset in ggml-cpu/amx/mmq.cpp, forward_mul_mat in ggml-cpu/repack.cpp.

#pragma once

#include "ggml-cpu-impl.h"
#include "ggml-impl.h"

#include <cstring>

namespace {

inline bool one_matrix(const ggml_tensor * weights) { return weights->ne[2] * weights->ne[3] == 1; }

// The distance of rows in bytes, whatever their batch; 0 where it is not always the same. A dimension of one
// may have any stride.
inline size_t distance(const ggml_tensor * x) {
    size_t found = 0, next = 0;
    for (int i = 1; i < GGML_MAX_DIMS; ++i) {
        if (x->ne[i] == 1) continue;
        if (found == 0) found = next = x->nb[i];
        if (x->nb[i] != next) return 0;
        next *= x->ne[i];
    }
    return found ? found : ggml_row_size(x->type, x->ne[0]);
}

// Whether a product is of one matrix, and of rows in batches or apart from each other.
inline bool is_stacked(const ggml_tensor * op) {
    const ggml_tensor * x = op->src[1];
    return op->op == GGML_OP_MUL_MAT && one_matrix(op->src[0]) && x->type == GGML_TYPE_F32 &&
           x->nb[0] == sizeof(float) && ggml_is_contiguous(op) &&
           (op->ne[2] * op->ne[3] > 1 || !ggml_is_contiguous(x));
}

// Such a product as one of all its rows; each thread has its own view of it.
class Stacked {
  public:
    ggml_tensor op;

    explicit Stacked(const ggml_tensor * product)
        : op(*product), source_(product->src[1]), x_(*product->src[1]) {
        flatten(x_, distance(source_)), flatten(op, op.nb[1]);
        op.src[1] = &x_;
    }
    Stacked(const Stacked &) = delete;
    Stacked & operator=(const Stacked &) = delete;

    bool evenly() const { return distance(source_) != 0; }

    // Work space in which rows that lie apart are gathered, and where they shall be: before the end of all.
    size_t gathered_bytes() const {
        return ggml_is_contiguous(source_) ? 0 : sizeof(float) * ggml_nelements(source_) + ALIGNMENT;
    }

    // As if its rows lay one behind the other, for those who look at sizes alone.
    void lay_together() { flatten(x_, sizeof(float) * x_.ne[0]); }

    // Every thread calls this: what is left of the work space. Then rows lie one behind the other.
    ggml_compute_params gather(const ggml_compute_params & params) {
        ggml_compute_params left = params;
        if (gathered_bytes() == 0) return left;
        GGML_ASSERT(params.wsize >= gathered_bytes());
        left.wsize = params.wsize - gathered_bytes();
        uintptr_t at = reinterpret_cast<uintptr_t>(params.wdata) + left.wsize;
        at = (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        const size_t bytes = sizeof(float) * x_.ne[0];
        for (int64_t row = params.ith; row < x_.ne[1]; row += params.nth) {
            std::memcpy(reinterpret_cast<char *>(at) + row * bytes, source_row(row), bytes);
        }
        x_.data = reinterpret_cast<void *>(at);
        lay_together();
        ggml_barrier(params.threadpool);
        return left;
    }

  private:
    static constexpr size_t ALIGNMENT = 64;  // of a line of the cache

    const ggml_tensor * source_;
    ggml_tensor x_;

    static void flatten(ggml_tensor & tensor, size_t distance) {
        tensor.ne[1] *= tensor.ne[2] * tensor.ne[3];
        tensor.ne[2] = tensor.ne[3] = 1;
        tensor.nb[1] = distance;
        tensor.nb[2] = tensor.nb[3] = distance * tensor.ne[1];
    }

    const char * source_row(int64_t row) const {
        const int64_t i1 = row % source_->ne[1], batch = row / source_->ne[1];
        const int64_t i2 = batch % source_->ne[2], i3 = batch / source_->ne[2];
        return static_cast<const char *>(source_->data) + i1 * source_->nb[1] + i2 * source_->nb[2] +
               i3 * source_->nb[3];
    }
};

}  // namespace
