#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// y[n] = weight[ids[n]] (+ position_weight[positions[n]]).
//   y [N, D] type of weight     ids, positions [N] int32     weight [V, D]
//   position_weight [P, D], absent for families without learned positions
// Ids and positions were checked when the batch was read (data/loader).
void embedding_forward(Stream& stream, Tensor y, ConstTensor ids, ConstTensor weight,
                       ConstTensor positions, ConstTensor position_weight);

// dweight[ids[n]] += dy[n]  (and dposition_weight[positions[n]] += dy[n]), each row in an order
// that is fixed by the device's kind: deterministic. On the CPU it is the order of n.
//   dweight [V, D], dposition_weight [P, D] or absent: fp32        dy [N, D]
void embedding_backward(Stream& stream, Arena& scratch, Tensor dweight, Tensor dposition_weight,
                        ConstTensor dy, ConstTensor ids, ConstTensor positions);

LOCKSTEP_KERNELS(  // arguments are already checked
    void embedding_forward(Stream& stream, Tensor y, ConstTensor ids, ConstTensor weight,
                           ConstTensor positions, ConstTensor position_weight);
    void embedding_backward(Stream& stream, Arena& scratch, Tensor dweight, Tensor dposition_weight,
                            ConstTensor dy, ConstTensor ids, ConstTensor positions);)

}  // namespace lockstep
