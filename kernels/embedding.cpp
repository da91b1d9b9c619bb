#include "kernels/embedding.h"

#include "kernels/check.h"

namespace lockstep {

void embedding_forward(Stream& stream, Tensor y, ConstTensor ids, ConstTensor weight,
                       ConstTensor positions, ConstTensor position_weight) {
  LOCKSTEP_CHECK(weight.shape.rank == 2, "weight is ", weight.shape, ", expected [V, D]");
  const auto N = ids.elements(), D = weight.shape[1];
  check_float("weight", weight);
  check_tensor("ids", ids, {N}, DType::int32);
  check_tensor("y", y, {N, D}, weight.dtype);
  if (position_weight) {
    check_tensor("position_weight", position_weight, {position_weight.shape[0], D}, weight.dtype);
    check_tensor("positions", positions, {N}, DType::int32);
  }
  LOCKSTEP_DISPATCH(stream, embedding_forward(stream, y, ids, weight, positions, position_weight));
}

void embedding_backward(Stream& stream, Arena& scratch, Tensor dweight, Tensor dposition_weight,
                        ConstTensor dy, ConstTensor ids, ConstTensor positions) {
  LOCKSTEP_CHECK(dy.shape.rank == 2, "dy is ", dy.shape, ", expected [N, D]");
  const auto N = dy.shape[0], D = dy.shape[1];
  check_float("dy", dy);
  check_tensor("ids", ids, {N}, DType::int32);
  check_tensor("dweight", dweight, {dweight.shape[0], D}, DType::fp32);
  if (dposition_weight) {
    check_tensor("dposition_weight", dposition_weight, {dposition_weight.shape[0], D}, DType::fp32);
    check_tensor("positions", positions, {N}, DType::int32);
  }
  LOCKSTEP_DISPATCH_SCRATCH(
      stream, embedding_backward(stream, scratch, dweight, dposition_weight, dy, ids, positions));
}

}  // namespace lockstep
