// Matrices multiplied by ggml's CPU library, for a machine that has no Python: what an emulator runs.
//
// First it writes a line with the kernels of LocalSpec and one with their formats. Then it reads
// products from standard input and writes what came out: five numbers of 64 bits (ggml's type, 1 for
// packed weights, activations, outputs, rows), the weights as in a file, the rows.

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

extern "C" const char * localspec_rows_kernels();
extern "C" const char * localspec_rows_formats();

namespace {

struct Asked {
    int64_t type, packed, width, outputs, rows;
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

// One tensor in a buffer of its own.
ggml_tensor * tensor(ggml_context * context, ggml_backend_buffer_type_t where, ggml_type type, int64_t width,
                     int64_t height, const void * data) {
    ggml_tensor * made = ggml_new_tensor_2d(context, type, width, height);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(where, ggml_backend_buft_get_alloc_size(where, made));
    ggml_backend_tensor_alloc(buffer, made, ggml_backend_buffer_get_base(buffer));
    if (data) ggml_backend_tensor_set(made, data, 0, ggml_nbytes(made));
    return made;
}

void answer(ggml_backend_t backend, ggml_backend_buffer_type_t plain, ggml_backend_buffer_type_t packed,
            const Asked & asked) {
    const auto type = ggml_type(asked.type);
    const auto weights = read<uint8_t>(ggml_row_size(type, asked.width) * asked.outputs);
    const auto x = read<float>(asked.width * asked.rows);
    ggml_context * context = ggml_init({1 << 18, nullptr, true});
    ggml_tensor * left = tensor(context, asked.packed ? packed : plain, type, asked.width, asked.outputs, weights.data());
    ggml_tensor * right = tensor(context, plain, GGML_TYPE_F32, asked.width, asked.rows, x.data());
    ggml_tensor * product = ggml_mul_mat(context, left, right);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(plain, ggml_nbytes(product) + 64);
    ggml_backend_tensor_alloc(buffer, product, ggml_backend_buffer_get_base(buffer));
    ggml_cgraph * graph = ggml_new_graph(context);
    ggml_build_forward_expand(graph, product);
    ggml_backend_graph_compute(backend, graph);
    std::vector<float> out(asked.outputs * asked.rows);
    ggml_backend_tensor_get(product, out.data(), 0, ggml_nbytes(product));
    std::fwrite(out.data(), sizeof(float), out.size(), stdout);
    std::fflush(stdout);
    for (ggml_tensor * each : {left, right, product}) ggml_backend_buffer_free(each->buffer);
    ggml_free(context);
}

}  // namespace

int main() {
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, 2);
    ggml_backend_dev_t device = ggml_backend_get_device(backend);
    const char * kernels = localspec_rows_kernels();
    std::printf("%s\n%s\n", kernels ? kernels : "", localspec_rows_formats());
    std::fflush(stdout);
    Asked asked;
    while (std::fread(&asked, sizeof asked, 1, stdin) == 1) {
        answer(backend, ggml_backend_dev_buffer_type(device), packed_type(device), asked);
    }
    ggml_backend_free(backend);
}
