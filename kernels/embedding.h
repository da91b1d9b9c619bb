#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// EmbeddingPart is one rank's part of an embedding whose table is divided by rows. The rank has the
// V rows from first_id on, of table_rows (0: V). It adds the positions of the tokens from
// position_begin to before position_end (-1: N). If one rank adds each token's position, the sum
// over the ranks has the bits of the whole embedding, except the sign of 0. By default a rank
// computes the whole embedding.
struct EmbeddingPart {
  std::int64_t first_id = 0, table_rows = 0;
  std::int64_t position_begin = 0, position_end = -1;
};

// embedding_forward computes y[n] = weight[ids[n] - first_id], or 0 if weight has no such row,
//   + position_weight[positions[n]] for the tokens n that `part` names
//   y [N, D] type of weight     ids, positions [N] int32     weight [V, D]
//   position_weight [P, D], absent for families without learned positions
// Ids and positions were checked when the batch was read (data/loader).
struct EmbeddingForward {
  Tensor y;
  ConstTensor ids, weight;
  ConstTensor positions = {}, position_weight = {};
  EmbeddingPart part = {};
};
void embedding_forward(Stream& stream, const EmbeddingForward& args);

// embedding_backward computes
//   dweight[ids[n] - first_id] += dy[n], except for ids without a row in dweight
//   dposition_weight[positions[n]] += dy[n] for the tokens n that `part` names
// It is deterministic. The order in which a row is summed depends only on the kind of device, and
// on a GPU on the rows of this part. On the CPU it is the order of n.
//   dweight [V, D], dposition_weight [P, D] or absent: fp32        dy [N, D]
struct EmbeddingBackward {
  Tensor dweight, dposition_weight = {};
  ConstTensor dy, ids, positions = {};
  EmbeddingPart part = {};
};
void embedding_backward(Stream& stream, Arena& scratch, const EmbeddingBackward& args);

LOCKSTEP_KERNELS(  // arguments are already checked; table_rows and position_end are set
    void embedding_forward(Stream& stream, const EmbeddingForward& args);
    void embedding_backward(Stream& stream, Arena& scratch, const EmbeddingBackward& args);)

}  // namespace lockstep
