#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// What ranks send each other of a tensor that they sum (dist/reduction.h), packed and added up.

// out[i, a, j] = in[a, i, first + j]: columns [first, first + m) of the pieces of `in`, in the
// other order of their two indices, rounded to the type of out.
//   out [I, A, m], in [A, I, n] fp32 or bf16
void pack_pieces(Stream& stream, Tensor out, ConstTensor in, std::int64_t first);

// out[j] = sum over p of pieces[p, j], in fp32 and in the order of p: the same bits whoever adds,
// on a CPU or a GPU. Then, where they are given: + bias[j % C] + residual[j] + what out held before
// (`add`); rounded once, to the type of out.
//   out [n], pieces [P, n], residual [n]: fp32 or bf16; pieces and residual of one type
//   bias [C] of the type of pieces, n a multiple of C
//   out may be residual where they have one type, and nothing else that is read
//   absmax [1] fp32, where given: set to max |out| as stored, NaNs left out
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
