#include "kernels/qk_norm.h"

#include "kernels/check.h"
#include "kernels/rope.h"

namespace lockstep {
namespace {

void check_heads(const char* what, ConstTensor t, int heads, int kv_heads) {
  LOCKSTEP_CHECK(heads > 0 && kv_heads > 0, heads, " heads and ", kv_heads,
                 " kv heads, expected at least 1 of each");
  LOCKSTEP_CHECK(t.shape.rank == 3 && t.shape[1] == heads + 2 * kv_heads && t.shape[2] > 0, what,
                 " is ", t.shape, ", expected [N, ", heads + 2 * kv_heads, ", K]");
  check_float(what, t);
}

void check_rotation(const Stream& stream, ConstTensor qkv, ConstTensor table,
                    ConstTensor positions) {
  LOCKSTEP_CHECK(bool(table) == bool(positions),
                 "a rope table comes with positions, and positions with a table");
  if (table) check_rope("qkv", stream, qkv, table, positions);
}

}  // namespace

void qk_norm_forward(Stream& stream, const QkNormForward& args) {
  const auto& qkv = args.qkv;
  check_heads("qkv", qkv, args.heads, args.kv_heads);
  check_tensor("out", args.out, qkv.shape, qkv.dtype);
  check_tensor("rstd", args.rstd, {qkv.shape[0], args.heads + args.kv_heads}, DType::fp32);
  check_tensor("q_weight", args.q_weight, {qkv.shape[2]}, qkv.dtype);
  check_tensor("k_weight", args.k_weight, {qkv.shape[2]}, qkv.dtype);
  check_rotation(stream, qkv, args.table, args.positions);
  const OpLog::Call call(stream,
                         memory_op("qk_norm_forward", qkv.dtype, {qkv, args.out, args.rstd}));
  LOCKSTEP_DISPATCH(stream, qk_norm_forward(stream, args));
}

void qk_norm_backward(Stream& stream, Arena& scratch, const QkNormBackward& args) {
  const auto& qkv = args.qkv;
  check_heads("qkv", qkv, args.heads, args.kv_heads);
  check_tensor("dqkv", args.dqkv, qkv.shape, qkv.dtype);
  check_tensor("rstd", args.rstd, {qkv.shape[0], args.heads + args.kv_heads}, DType::fp32);
  check_tensor("q_weight", args.q_weight, {qkv.shape[2]}, qkv.dtype);
  check_tensor("k_weight", args.k_weight, {qkv.shape[2]}, qkv.dtype);
  check_tensor("dq_weight", args.dq_weight, {qkv.shape[2]}, DType::fp32);
  check_tensor("dk_weight", args.dk_weight, {qkv.shape[2]}, DType::fp32);
  if (args.absmax) check_tensor("absmax", args.absmax, {1}, DType::fp32);
  check_rotation(stream, qkv, args.table, args.positions);
  const OpLog::Call call(
      stream, memory_op("qk_norm_backward", qkv.dtype, {qkv, args.dqkv, args.dqkv, args.rstd}));
  LOCKSTEP_DISPATCH_SCRATCH(stream, qk_norm_backward(stream, scratch, args));
}

}  // namespace lockstep
