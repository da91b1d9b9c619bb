#include "kernels/attention.h"

#include "kernels/check.h"

namespace lockstep {
namespace {

// Checks that the sizes of qkv [N, H + 2G, K] and out [N, H, K] agree.
void check_heads(ConstTensor qkv, const char* what, ConstTensor out) {
  LOCKSTEP_CHECK(qkv.shape.rank == 3 && qkv.shape[2] > 0, "qkv is ", qkv.shape,
                 ", expected [N, H + 2G, K]");
  check_float("qkv", qkv);
  LOCKSTEP_CHECK(out.shape.rank == 3, what, " is ", out.shape, ", expected [N, H, K]");
  const auto H = out.shape[1], both = qkv.shape[1] - H;
  LOCKSTEP_CHECK(H > 0 && both >= 2 && both % 2 == 0 && H % (both / 2) == 0, "qkv is ", qkv.shape,
                 " and ", what, " ", out.shape, ": ", qkv.shape[1], " heads less ", H,
                 " query heads leave ", both,
                 ", expected an equal number of key and value heads that divides the query heads");
  check_tensor(what, out, {qkv.shape[0], H, qkv.shape[2]}, qkv.dtype);
}

// Checks lse [B, H, T], which defines the sequences, and document_start [B, T], which may be
// absent.
void check_sequences(const Stream& stream, ConstTensor lse, ConstTensor document_start,
                     ConstTensor out) {
  const auto N = out.shape[0], H = out.shape[1];
  LOCKSTEP_CHECK(lse.shape.rank == 3 && lse.shape[0] * lse.shape[2] == N, "lse is ", lse.shape,
                 ", expected [B, ", H, ", T] with ", N, " tokens in all");
  const auto B = lse.shape[0], T = lse.shape[2];
  check_tensor("lse", lse, {B, H, T}, DType::fp32);
  if (!document_start) return;
  check_tensor("document_start", document_start, {B, T}, DType::int32);
  if (stream.is_measuring() || stream.is_cuda()) return;
  for (std::int64_t n = 0; n < N; ++n) {
    const auto start = document_start.as<std::int32_t>()[n];
    LOCKSTEP_CHECK(0 <= start && start <= T, "document_start[", n / T, ", ", n % T, "] is ", start,
                   ", expected a token from 0 to ", T);
  }
}

}  // namespace

Op attention_op(const char* name, int products, ConstTensor lse, ConstTensor out,
                std::initializer_list<ConstTensor> tensors) {
  Op op = memory_op(name, out.dtype, tensors);
  op.kind = Op::Kind::attention;
  const auto B = lse.shape[0], H = lse.shape[1], T = lse.shape[2], K = out.shape[2];
  op.flops = 2.0 * products * static_cast<double>(B * H * K) * static_cast<double>(T) *
             static_cast<double>(T + 1) / 2;
  op.sizes = {B, T, H, K};
  return op;
}

void attention_forward(Stream& stream, Arena& scratch, Tensor out, Tensor lse, ConstTensor qkv,
                       ConstTensor document_start, Tensor absmax) {
  check_heads(qkv, "out", out);
  check_sequences(stream, lse, document_start, out);
  if (absmax) check_tensor("absmax", absmax, {1}, DType::fp32);
  const OpLog::Call call(stream, attention_op("attention_forward", 2, lse, out, {qkv, out, lse}));
  LOCKSTEP_DISPATCH_SCRATCH(
      stream, attention_forward(stream, scratch, out, lse, qkv, document_start, absmax));
}

void attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                        ConstTensor out, ConstTensor lse, ConstTensor qkv,
                        ConstTensor document_start) {
  check_heads(qkv, "out", out);
  check_tensor("dqkv", dqkv, qkv.shape, qkv.dtype);
  check_tensor("dout", dout, out.shape, qkv.dtype);
  check_sequences(stream, lse, document_start, out);
  const OpLog::Call call(
      stream, attention_op("attention_backward", 5, lse, out, {qkv, dqkv, out, dout, lse}));
  LOCKSTEP_DISPATCH_SCRATCH(
      stream, attention_backward(stream, scratch, dqkv, dout, out, lse, qkv, document_start));
}

void attention_cached(Stream& stream, Arena& scratch, Tensor out, const KvCache& cache,
                      ConstTensor qkv, ConstTensor positions) {
  check_heads(qkv, "out", out);
  const auto G = (qkv.shape[1] - out.shape[1]) / 2, K = qkv.shape[2];
  LOCKSTEP_CHECK(positions.shape.rank == 2, "positions is ", positions.shape, ", expected [B, n]");
  const auto B = positions.shape[0], n = positions.shape[1];
  check_dtype("positions", positions, DType::int32);
  LOCKSTEP_CHECK(B * n == qkv.shape[0], "positions is ", positions.shape, ", expected [B, n] with ",
                 qkv.shape[0], " tokens in all");
  LOCKSTEP_CHECK(cache.keys.shape.rank == 4, "cache.keys is ", cache.keys.shape,
                 ", expected [B, C, G, K]");
  const auto C = cache.keys.shape[1];
  check_tensor("cache.keys", cache.keys, {B, C, G, K}, qkv.dtype);
  check_tensor("cache.values", cache.values, {B, C, G, K}, qkv.dtype);
  if (!stream.is_measuring() && !stream.is_cuda()) {
    for (std::int64_t i = 0; i < B * n; ++i) {
      const auto p = positions.as<std::int32_t>()[i];
      LOCKSTEP_CHECK(0 <= p && p < C, "positions[", i / n, ", ", i % n, "] is ", p,
                     ", but the cache holds ", C, " tokens");
    }
  }
  LOCKSTEP_DISPATCH_SCRATCH(stream, attention_cached(stream, scratch, out, cache, qkv, positions));
}

}  // namespace lockstep
