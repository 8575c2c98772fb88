// Operations of ggml's CPU library, for a machine that has no Python: what an emulator runs.
//
// First it writes three lines: LocalSpec's kernels, their formats, and "attention" if that is ours. Then
// it reads requests from standard input and writes how many bytes came out, and these numbers: none where
// weights may not be where they are. A request: what to compute (0 a product of weights and rows, 1 attention
// of q, k, v, a mask and perhaps sinks, 2 a product of rows whose second and third size are crossed), on how
// many threads, the cap of attention's scores or which runs of 16 outputs of a product are wanted (as bits,
// none for all), and how many tensors; of each ggml's type, 1 if it is packed, and four sizes; then the
// numbers of each.

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" const char * localspec_rows_kernels();
extern "C" const char * localspec_rows_formats();
extern "C" bool localspec_rows_attention();
extern "C" void localspec_rows_shortlist(int64_t outputs, const int32_t * runs, int count);

namespace {

struct Asked {
    int64_t operation, threads, detail, tensors;
};

struct Shape {
    int64_t type, packed, sizes[4];
};

ggml_backend_buffer_type_t packed_type(ggml_backend_dev_t device) {
    ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(device);
    const auto extras = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
        ggml_backend_reg_get_proc_address(registry, "ggml_backend_dev_get_extra_bufts"));
    for (auto * each = extras(device); *each; ++each) {
        if (!std::strcmp(ggml_backend_buft_name(*each), "CPU_REPACK")) return *each;
    }
    return nullptr;
}

template <typename T>
std::vector<T> read(size_t count) {
    std::vector<T> data(count);
    if (std::fread(data.data(), sizeof(T), count, stdin) != count) std::exit(1);
    return data;
}

constexpr size_t GUARD = 1 << 16;
constexpr uint8_t UNTOUCHED = 0xa5;

// Memory of a result's own with some around it, which has to stay as it is.
ggml_backend_buffer_t guarded(ggml_tensor * tensor, ggml_backend_buffer_type_t where) {
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(where, GUARD + ggml_nbytes(tensor) + GUARD);
    ggml_backend_buffer_clear(buffer, UNTOUCHED);
    ggml_backend_tensor_alloc(buffer, tensor, static_cast<char *>(ggml_backend_buffer_get_base(buffer)) + GUARD);
    return buffer;
}

void expect_untouched(const ggml_tensor * tensor) {
    const auto * begin = static_cast<const uint8_t *>(tensor->data), *end = begin + ggml_nbytes(tensor);
    for (size_t i = 0; i < GUARD; ++i) {
        if (*(begin - 1 - i) == UNTOUCHED && end[i] == UNTOUCHED) continue;
        std::fprintf(stderr, "an operation wrote outside of its result\n");
        std::exit(3);
    }
}

// Memory of a tensor's own.
ggml_backend_buffer_t place(ggml_tensor * tensor, ggml_backend_buffer_type_t where) {
    ggml_backend_buffer_t buffer =
        ggml_backend_buft_alloc_buffer(where, ggml_backend_buft_get_alloc_size(where, tensor));
    ggml_backend_tensor_alloc(buffer, tensor, ggml_backend_buffer_get_base(buffer));
    return buffer;
}

// As attention reads what has all heads of a cell side by side.
ggml_tensor * turned(ggml_context * context, ggml_tensor * tensor) {
    return ggml_permute(context, tensor, 0, 2, 1, 3);
}

ggml_tensor * result(ggml_context * context, const Asked & asked, const std::vector<ggml_tensor *> & given) {
    if (asked.operation == 0) return ggml_mul_mat(context, given[0], given[1]);
    if (asked.operation == 2) return ggml_mul_mat(context, given[0], turned(context, given[1]));
    ggml_tensor * attention = ggml_flash_attn_ext(
        context, turned(context, given[0]), turned(context, given[1]), turned(context, given[2]), given[3],
        1.0f / std::sqrt(float(given[0]->ne[0])), 0.0f, float(asked.detail));
    if (given.size() > 4) ggml_flash_attn_ext_add_sinks(attention, given[4]);
    return attention;
}

void answer(ggml_backend_t backend, const Asked & asked) {
    ggml_backend_dev_t device = ggml_backend_get_device(backend);
    ggml_backend_buffer_type_t plain = ggml_backend_dev_buffer_type(device), packed = packed_type(device);
    ggml_backend_cpu_set_n_threads(backend, int(asked.threads));
    ggml_context * context = ggml_init({1 << 18, nullptr, true});
    std::vector<ggml_tensor *> given;
    std::vector<ggml_backend_buffer_t> buffers;
    for (const Shape & shape : read<Shape>(asked.tensors)) {
        given.push_back(ggml_new_tensor(context, ggml_type(shape.type), 4, shape.sizes));
        buffers.push_back(place(given.back(), shape.packed ? packed : plain));
    }
    ggml_tensor * computed = result(context, asked, given);
    const bool can = asked.operation == 1 || ggml_backend_dev_supports_op(device, computed);
    for (ggml_tensor * tensor : given) {
        const auto numbers = read<uint8_t>(ggml_nbytes(tensor));
        if (can) ggml_backend_tensor_set(tensor, numbers.data(), 0, numbers.size());
    }
    buffers.push_back(guarded(computed, plain));
    ggml_cgraph * graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, computed);
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        ggml_tensor * node = ggml_graph_node(graph, i);
        if (node->view_src && !node->buffer) ggml_backend_view_init(node);
    }
    std::vector<int32_t> runs;
    for (int run = 0; asked.operation == 0 && run < 64; ++run) {
        if (asked.detail >> run & 1) runs.push_back(run);
    }
    localspec_rows_shortlist(computed->ne[0], runs.empty() ? nullptr : runs.data(), int(runs.size()));
    if (can) ggml_backend_graph_compute(backend, graph);
    expect_untouched(computed);
    std::vector<uint8_t> out(can ? ggml_nbytes(computed) : 0);
    if (can) ggml_backend_tensor_get(computed, out.data(), 0, out.size());
    const int64_t count = int64_t(out.size());
    std::fwrite(&count, sizeof count, 1, stdout);
    std::fwrite(out.data(), 1, out.size(), stdout);
    std::fflush(stdout);
    for (ggml_backend_buffer_t buffer : buffers) ggml_backend_buffer_free(buffer);
    ggml_free(context);
}

}  // namespace

int main() {
    ggml_backend_t backend = ggml_backend_cpu_init();
    const char * kernels = localspec_rows_kernels();
    std::printf("%s\n%s\n%s\n", kernels ? kernels : "", localspec_rows_formats(),
                localspec_rows_attention() ? "attention" : "");
    std::fflush(stdout);
    Asked asked;
    while (std::fread(&asked, sizeof asked, 1, stdin) == 1) answer(backend, asked);
    ggml_backend_free(backend);
}
