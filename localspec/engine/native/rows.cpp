// What is ours: attention, and products by the table of formats and layouts; and llama.cpp's way into it.
//
// rows.cmake compiles this into ggml's CPU library, where llama.cpp's own functions of these names get
// the suffix _stock. The environment's LOCALSPEC_ROWS=0 leaves everything to them.

#include "ggml-backend-impl.h"
#include "repack.h"
#include "rows.h"
#include "stacked.h"
#include "traits.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__F16C__)
#include "avx512.h"
#include "attention.h"
#include "x86.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "avx2.h"
#include "attention.h"
#include "x86.h"
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include "neon.h"
#include "attention.h"
#include "arm.h"
#else
#define LOCALSPEC_NONE
#endif

extern "C" {
const char * localspec_rows_kernels();
const char * localspec_rows_formats();
bool localspec_rows_attention();
void localspec_rows_shortlist(int64_t outputs, const int32_t * runs, int count);
void localspec_rows_use(bool ours);
bool ggml_cpu_extra_compute_forward_stock(ggml_compute_params * params, ggml_tensor * op);
bool ggml_cpu_extra_work_size_stock(int n_threads, const ggml_tensor * op, size_t * size);
}

namespace {

// Whether we are in charge: as the environment says, until somebody compares.
std::atomic<bool> & wanted() {
    static std::atomic<bool> on = [] {
        const char * wish = std::getenv("LOCALSPEC_ROWS");
        return !wish || std::strcmp(wish, "0") != 0;
    }();
    return on;
}

// Whether attention was computed here that is not ours.
std::atomic<bool> & met_another() {
    static std::atomic<bool> met{false};
    return met;
}

// Of products with so many outputs. It is set between two graphs, by whoever computes both.
struct { int64_t outputs; Shortlist list; } listed{0, {nullptr, 0}};

template <typename... All>
std::string names(Formats<All...>) {
    return ((std::string(" ") + ggml_type_name(All::TYPE)) + ... + "");
}

}  // namespace

Shortlist localspec_wanted(int64_t outputs) {
    if (listed.list.runs && outputs == listed.outputs) return listed.list;
    return {nullptr, int((outputs + Shortlist::RUN - 1) / Shortlist::RUN)};
}

// From the next graph on, of products with so many outputs only these runs of 16 are computed, where the
// kernels are ours. They stay the caller's, until this is called again; with nullptr all are computed.
extern "C" __attribute__((visibility("default"))) void localspec_rows_shortlist(
    int64_t outputs, const int32_t * runs, int count) {
    listed = {outputs, {runs, count}};
}

// The instruction set of these kernels, or nothing where they are not used. LocalSpec looks this symbol
// up to know its build.
extern "C" __attribute__((visibility("default"))) const char * localspec_rows_kernels() {
#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)
    return wanted() ? "AMX" : nullptr;
#elif !defined(LOCALSPEC_NONE)
    return wanted() ? Vectors::NAME : nullptr;
#else
    return nullptr;
#endif
}

// From the next graph on our kernels compute, or llama.cpp's own: what compares the two calls this.
extern "C" __attribute__((visibility("default"))) void localspec_rows_use(bool ours) { wanted() = ours; }

// The table: "packed q4_0 q4_K plain q5_K", as ggml names its types.
extern "C" __attribute__((visibility("default"))) const char * localspec_rows_formats() {
#if !defined(LOCALSPEC_NONE)
    static const std::string all = "packed" + names(OfPacked()) + " plain" + names(OfPlain());
    return all.c_str();
#else
    return "";
#endif
}

// Whether attention over f16 is ours as well, and this process has met none of another kind.
extern "C" __attribute__((visibility("default"))) bool localspec_rows_attention() {
#if !defined(LOCALSPEC_NONE)
    return wanted() && !met_another();
#else
    return false;
#endif
}

namespace {

enum class Layout { PLAIN, PACKED, OTHER };

Layout layout(const ggml_tensor * weights) {
    if (!weights->buffer) return Layout::OTHER;
    if (weights->buffer->buft == ggml_backend_cpu_repack_buffer_type()) {
        return weights->extra ? Layout::PACKED : Layout::OTHER;
    }
    return ggml_backend_buffer_is_host(weights->buffer) && ggml_is_contiguous(weights) ? Layout::PLAIN : Layout::OTHER;
}

template <typename... All, typename Use>
bool choose(Formats<All...>, ggml_tensor * op, const Use & use) {
    return ((fits<All>(op->src[0]) && op->ne[1] <= All::MOST_ROWS && (use(Product<All>(op)), true)) || ...);
}

// Calls `use` with what computes this operation, if it is ours; whether it is.
template <typename Use>
bool ours(ggml_tensor * op, const Use & use) {
#if !defined(LOCALSPEC_NONE)
    if (!wanted()) return false;
    if (op->op == GGML_OP_FLASH_ATTN_EXT) {
        if (Attention::takes(op)) return use(Attention(op)), true;
        return met_another() = true, false;
    }
    if (op->op != GGML_OP_MUL_MAT) return false;
    const ggml_tensor *weights = op->src[0], *x = op->src[1];
    if (op->ne[2] * op->ne[3] * weights->ne[2] * weights->ne[3] != 1) return false;
    if (x->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float) || ggml_get_op_params_i32(op, 1) != GGML_HINT_NONE) {
        return false;
    }
    switch (layout(weights)) {
        case Layout::PACKED: return choose(OfPacked(), op, use);
        case Layout::PLAIN: return choose(OfPlain(), op, use);
        case Layout::OTHER: return false;
    }
#endif
    (void) op, (void) use;
    return false;
}

// Whether weights are in a layout of llama.cpp's that it cannot read as plain ones.
bool is_packed(const ggml_tensor * weights) {
    return weights->buffer && !ggml_backend_buffer_is_host(weights->buffer);
}

bool compute_ours(ggml_compute_params & params, ggml_tensor * op) {
    return !params.use_ref && ours(op, [&](const auto & work) { work.compute(&params); });
}

bool size_ours(int n_threads, const ggml_tensor * op, size_t * size) {
    return ours(const_cast<ggml_tensor *>(op), [&](const auto & work) { *size = work.scratch_bytes(n_threads); });
}

// llama.cpp's own, where it does this right: KleidiAI multiplies halves in the first batch of a fourth
// dimension and leaves out the others (compute_forward_fp16 in ggml-cpu/kleidiai/kleidiai.cpp).
bool is_trusted(const ggml_tensor * op) {
    return op->op != GGML_OP_MUL_MAT || op->ne[3] == 1 || is_packed(op->src[0]);
}

bool compute_stock(ggml_compute_params & params, ggml_tensor * op) {
    return is_trusted(op) && ggml_cpu_extra_compute_forward_stock(&params, op);
}

bool size_stock(int n_threads, const ggml_tensor * op, size_t * size) {
    return is_trusted(op) && ggml_cpu_extra_work_size_stock(n_threads, op, size);
}

}  // namespace

// Rows in batches are one product: by our kernels as they lie, if that is evenly; of packed weights otherwise
// one behind the other, by whichever kernels; and of plain weights llama.cpp's own read them anywhere.
bool ggml_cpu_extra_compute_forward(ggml_compute_params * params, ggml_tensor * op) {
    if (!is_stacked(op)) return compute_ours(*params, op) || compute_stock(*params, op);
    Stacked stacked(op);
    if (stacked.evenly() && compute_ours(*params, &stacked.op)) return true;
    if (!is_packed(op->src[0])) return compute_stock(*params, op);
    ggml_compute_params left = stacked.gather(*params);
    return compute_ours(left, &stacked.op) || compute_stock(left, &stacked.op);
}

bool ggml_cpu_extra_work_size(int n_threads, const ggml_tensor * op, size_t * size) {
    if (!is_stacked(op)) return size_ours(n_threads, op, size) || size_stock(n_threads, op, size);
    Stacked stacked(op);
    if (stacked.evenly() && size_ours(n_threads, &stacked.op, size)) return true;
    if (!is_packed(op->src[0])) return size_stock(n_threads, op, size);
    const bool known = size_ours(n_threads, &stacked.op, size) || size_stock(n_threads, &stacked.op, size);
    *size += stacked.gathered_bytes();
    return known;
}
