#include "kernels/cross_entropy.h"

#include "kernels/check.h"

namespace lockstep {
namespace {

void check_columns(ConstTensor logits, const CrossEntropy& args) {
  LOCKSTEP_CHECK(logits.shape.rank == 2, "logits is ", logits.shape, ", expected [n, Vp]");
  const auto n = logits.shape[0];
  check_float("logits", logits);
  check_tensor("targets", args.targets, {n}, DType::int32);
  LOCKSTEP_CHECK(0 < args.vocabulary, "vocabulary is ", args.vocabulary, ", expected at least 1");
  LOCKSTEP_CHECK(0 <= args.first_column, "first_column is ", args.first_column,
                 ", expected at least 0");
}

void check(ConstTensor logits, const CrossEntropy& args) {
  check_columns(logits, args);
  const auto n = logits.shape[0];
  check_tensor("losses", args.losses, {n}, DType::fp32);
  if (args.parts) {
    check_tensor("parts", args.parts, {args.parts.shape[0], n, 3}, DType::fp32);
    return;
  }
  LOCKSTEP_CHECK(args.first_column == 0, "first_column is ", args.first_column,
                 ", expected 0 without the parts of all ranks (cross_entropy_parts)");
  LOCKSTEP_CHECK(args.vocabulary <= logits.shape[1], "vocabulary is ", args.vocabulary,
                 ", expected 1 to ", logits.shape[1], ", the columns of logits");
}

}  // namespace

void cross_entropy_parts(Stream& stream, Tensor parts, ConstTensor logits,
                         const CrossEntropy& args) {
  check_columns(logits, args);
  check_tensor("parts", parts, {logits.shape[0], 3}, DType::fp32);
  const OpLog::Call call(stream, memory_op("cross_entropy_parts", logits.dtype, {logits, parts}));
  LOCKSTEP_DISPATCH(stream, cross_entropy_parts(stream, parts, logits, args));
}

void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args) {
  check(logits, args);
  const OpLog::Call call(
      stream, memory_op("cross_entropy_gradient", logits.dtype, {logits, logits, args.losses}));
  LOCKSTEP_DISPATCH(stream, cross_entropy_gradient(stream, logits, args));
}

void cross_entropy_loss(Stream& stream, ConstTensor logits, const CrossEntropy& args) {
  check(logits, args);
  const OpLog::Call call(stream,
                         memory_op("cross_entropy_loss", logits.dtype, {logits, args.losses}));
  LOCKSTEP_DISPATCH(stream, cross_entropy_loss(stream, logits, args));
}

void sum_losses(Stream& stream, Tensor loss_sum, Tensor valid_tokens, ConstTensor losses,
                ConstTensor targets) {
  check_tensor("loss_sum", loss_sum, {1}, DType::fp32);
  check_tensor("valid_tokens", valid_tokens, {1}, DType::int32);
  check_tensor("losses", losses, {losses.elements()}, DType::fp32);
  check_tensor("targets", targets, losses.shape, DType::int32);
  const OpLog::Call call(stream, memory_op("sum_losses", losses.dtype, {losses, targets}));
  LOCKSTEP_DISPATCH(stream, sum_losses(stream, loss_sum, valid_tokens, losses, targets));
}

}  // namespace lockstep
