// Weights as llama.cpp keeps them on x86, multiplied by any rows.
//
// A weight is unpacked once, in registers, for up to 32 rows. Whole numbers are exact in any order. Floats
// are added in that of llama.cpp's one-row kernels, so that a row's numbers are the same bits for any
// number of rows, and the same as without this file; `chained.h` and
// `lanes.h` have an order of their own, for any rows.

#pragma once

#include "packed.h"
#include "plain.h"
// With AMX hardly a weight is plain; what is keeps llama.cpp's bits, as all that is packed there does.
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
#include "chained.h"
#include "lanes.h"
#else
namespace {
using LanesQ5_K = PlainQ5_K;
using ChainedQ6_K = PlainQ6_K;
using LanesQ8_0 = PlainQ8_0;
using LanesIQ4_XS = PlainIQ4_XS;
}
#endif

namespace {

using OfPacked = Formats<PackedQ4_0, PackedQ4_K>;
using OfPlain = Formats<LanesQ5_K, ChainedQ6_K, LanesQ8_0, LanesIQ4_XS>;

}  // namespace
