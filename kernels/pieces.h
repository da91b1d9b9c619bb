#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// These kernels pack and sum the pieces of a tensor that ranks send each other to sum it
// (dist/reduction.h).

// Computes out[i, a, j] = in[a, i, first + j]. These are columns [first, first + m) of the pieces
// of `in`, with their two indices exchanged, rounded to the type of out.
//   out [I, A, m], in [A, I, n] fp32 or bf16
void pack_pieces(Stream& stream, Tensor out, ConstTensor in, std::int64_t first);

// sum_pieces computes out[j] = sum over p of pieces[p, j], in fp32 and in the order of p. The bits
// are the same on every rank, on a CPU or a GPU. Then it adds, if given, bias[j % C], residual[j]
// and the old out (`add`). It rounds once, to the type of out.
//   out [n], pieces [P, n], residual [n]: fp32 or bf16; pieces and residual of one type
//   bias [C] of the type of pieces, n a multiple of C
//   out may be residual if both have one type, but no other tensor that is read
//   absmax [1] fp32, if given: set to max |out| as stored, ignoring NaNs
struct SumPieces {
  Tensor out;
  ConstTensor pieces;
  ConstTensor bias = {}, residual = {};
  bool add = false;
  Tensor absmax = {};
};
void sum_pieces(Stream& stream, const SumPieces& args);

LOCKSTEP_KERNELS(  // arguments are already checked
    void pack_pieces(Stream& stream, Tensor out, ConstTensor in, std::int64_t first);
    void sum_pieces(Stream& stream, const SumPieces& args);)

}  // namespace lockstep
