#include "kernels/cross_entropy.h"

#include "kernels/check.h"

namespace lockstep {
namespace {

void check(ConstTensor logits, const CrossEntropy& args) {
  LOCKSTEP_CHECK(logits.shape.rank == 2, "logits is ", logits.shape, ", expected [n, Vp]");
  const auto n = logits.shape[0];
  check_float("logits", logits);
  check_tensor("losses", args.losses, {n}, DType::fp32);
  check_tensor("targets", args.targets, {n}, DType::int32);
  LOCKSTEP_CHECK(0 < args.vocabulary && args.vocabulary <= logits.shape[1], "vocabulary is ",
                 args.vocabulary, ", expected 1 to ", logits.shape[1], ", the columns of logits");
}

}  // namespace

void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args) {
  check(logits, args);
  LOCKSTEP_DISPATCH(stream, cross_entropy_gradient(stream, logits, args));
}

void cross_entropy_loss(Stream& stream, ConstTensor logits, const CrossEntropy& args) {
  check(logits, args);
  LOCKSTEP_DISPATCH(stream, cross_entropy_loss(stream, logits, args));
}

void sum_losses(Stream& stream, Tensor loss_sum, Tensor valid_tokens, ConstTensor losses,
                ConstTensor targets) {
  check_tensor("loss_sum", loss_sum, {1}, DType::fp32);
  check_tensor("valid_tokens", valid_tokens, {1}, DType::int32);
  check_tensor("losses", losses, {losses.elements()}, DType::fp32);
  check_tensor("targets", targets, losses.shape, DType::int32);
  LOCKSTEP_DISPATCH(stream, sum_losses(stream, loss_sum, valid_tokens, losses, targets));
}

}  // namespace lockstep
