// Weights as llama.cpp keeps them on x86, multiplied by few rows.
//
// A weight is unpacked once, in registers, for up to 32 rows. Whole numbers are exact in any order. Floats
// are added in that of llama.cpp's one-row kernels, so that a row's numbers are the same bits for any
// number of rows, and the same as without this file; `chained.h` has an order of its own, for any rows.

#pragma once

#include "packed.h"
#include "plain.h"
// With AMX hardly a weight is plain; what is keeps llama.cpp's bits, as all that is packed there does.
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
#include "chained.h"
#else
namespace {
using ChainedQ6_K = PlainQ6_K;
}
#endif

namespace {

using OfPacked = Formats<PackedQ4_0, PackedQ4_K>;
using OfPlain = Formats<PlainQ5_K, ChainedQ6_K, PlainQ8_0, PlainIQ4_XS>;

}  // namespace
