#include "kernels/embedding.h"

#include "kernels/check.h"

namespace lockstep {
namespace {

// Checks `part`, and returns it with its defaults replaced by their values.
EmbeddingPart checked(EmbeddingPart part, std::int64_t V, std::int64_t N) {
  if (part.table_rows == 0) part.table_rows = V;
  if (part.position_end == -1) part.position_end = N;
  LOCKSTEP_CHECK(0 <= part.first_id && part.first_id + V <= part.table_rows, "rows ", part.first_id,
                 "+", V, " of a table of ", part.table_rows);
  LOCKSTEP_CHECK(0 <= part.position_begin && part.position_begin <= part.position_end &&
                     part.position_end <= N,
                 "positions of tokens [", part.position_begin, ", ", part.position_end, ") of ", N);
  return part;
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& given) {
  auto args = given;
  LOCKSTEP_CHECK(args.weight.shape.rank == 2, "weight is ", args.weight.shape, ", expected [V, D]");
  const auto N = args.ids.elements(), D = args.weight.shape[1];
  check_float("weight", args.weight);
  check_tensor("ids", args.ids, {N}, DType::int32);
  check_tensor("y", args.y, {N, D}, args.weight.dtype);
  if (args.position_weight) {
    check_tensor("position_weight", args.position_weight, {args.position_weight.shape[0], D},
                 args.weight.dtype);
    check_tensor("positions", args.positions, {N}, DType::int32);
  }
  args.part = checked(args.part, args.weight.shape[0], N);
  const OpLog::Call call(
      stream, memory_op("embedding_forward", args.weight.dtype,
                        {args.y, args.y, args.position_weight ? args.y : Tensor(), args.ids}));
  LOCKSTEP_DISPATCH(stream, embedding_forward(stream, args));
}

void embedding_backward(Stream& stream, Arena& scratch, const EmbeddingBackward& given) {
  auto args = given;
  LOCKSTEP_CHECK(args.dy.shape.rank == 2, "dy is ", args.dy.shape, ", expected [N, D]");
  const auto N = args.dy.shape[0], D = args.dy.shape[1];
  check_float("dy", args.dy);
  check_tensor("ids", args.ids, {N}, DType::int32);
  check_tensor("dweight", args.dweight, {args.dweight.shape[0], D}, DType::fp32);
  if (args.dposition_weight) {
    check_tensor("dposition_weight", args.dposition_weight, {args.dposition_weight.shape[0], D},
                 DType::fp32);
    check_tensor("positions", args.positions, {N}, DType::int32);
  }
  args.part = checked(args.part, args.dweight.shape[0], N);
  const OpLog::Call call(stream, memory_op("embedding_backward", args.dy.dtype,
                                           {args.dy, args.dy, args.dy, args.ids}));
  LOCKSTEP_DISPATCH_SCRATCH(stream, embedding_backward(stream, scratch, args));
}

}  // namespace lockstep
