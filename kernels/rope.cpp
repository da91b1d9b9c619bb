#include "kernels/rope.h"

#include "kernels/check.h"

namespace lockstep {
namespace {

void check_scaling(const RopeScaling& s) {
  LOCKSTEP_CHECK(
      s.factor > 0 && s.original_context > 0 && 0 < s.low_factor && s.low_factor < s.high_factor,
      "rope scaling has factor ", s.factor, ", low_factor ", s.low_factor, ", high_factor ",
      s.high_factor, ", original_context ", s.original_context,
      ", expected all positive and low_factor < high_factor");
}

void check_rotate(const char* what, const Stream& stream, ConstTensor qkv, ConstTensor table,
                  ConstTensor positions, int heads, int kv_heads) {
  LOCKSTEP_CHECK(heads > 0 && kv_heads > 0, heads, " heads and ", kv_heads,
                 " kv heads, expected at least 1 of each");
  LOCKSTEP_CHECK(qkv.shape.rank == 3 && qkv.shape[1] == heads + 2 * kv_heads, what, " is ",
                 qkv.shape, ", expected [N, ", heads + 2 * kv_heads, ", K]");
  check_float(what, qkv);
  check_rope(what, stream, qkv, table, positions);
}

// Returns the queries and keys of qkv, which are rotated in place.
ConstTensor rotated(ConstTensor qkv, int heads, int kv_heads) {
  qkv.shape.size[1] = heads + kv_heads;
  return qkv;
}

}  // namespace

void check_rope(const char* what, const Stream& stream, ConstTensor qkv, ConstTensor table,
                ConstTensor positions) {
  LOCKSTEP_CHECK(qkv.shape[2] > 0 && qkv.shape[2] % 2 == 0, what, " is ", qkv.shape,
                 ", expected [N, ", qkv.shape[1], ", K] with K even");
  LOCKSTEP_CHECK(table.shape.rank == 2, "table is ", table.shape, ", expected [P, K]");
  check_tensor("table", table, {table.shape[0], qkv.shape[2]}, DType::fp32);
  check_tensor("positions", positions, {qkv.shape[0]}, DType::int32);
  if (stream.is_measuring() || stream.is_cuda()) return;
  for (std::int64_t n = 0; n < positions.shape[0]; ++n) {
    const auto p = positions.as<std::int32_t>()[n];
    LOCKSTEP_CHECK(0 <= p && p < table.shape[0], "positions[", n, "] is ", p,
                   ", but the rope table has rows 0 to ", table.shape[0] - 1);
  }
}

void rope_table(Stream& stream, Tensor table, float theta,
                const std::optional<RopeScaling>& scaling) {
  LOCKSTEP_CHECK(table.shape.rank == 2 && table.shape[1] > 0 && table.shape[1] % 2 == 0,
                 "table is ", table.shape, ", expected [P, K] with K even");
  check_dtype("table", table, DType::fp32);
  LOCKSTEP_CHECK(theta > 0, "rope theta is ", theta, ", expected a positive number");
  if (scaling) check_scaling(*scaling);
  const OpLog::Call call(stream, memory_op("rope_table", table.dtype, {table}));
  LOCKSTEP_DISPATCH(stream, rope_table(stream, table, theta, scaling));
}

void rope_forward(Stream& stream, Tensor qkv, ConstTensor table, ConstTensor positions, int heads,
                  int kv_heads) {
  check_rotate("qkv", stream, qkv, table, positions, heads, kv_heads);
  const OpLog::Call call(stream,
                         memory_op("rope_forward", qkv.dtype,
                                   {rotated(qkv, heads, kv_heads), rotated(qkv, heads, kv_heads)}));
  LOCKSTEP_DISPATCH(stream, rope_forward(stream, qkv, table, positions, heads, kv_heads));
}

void rope_backward(Stream& stream, Tensor dqkv, ConstTensor table, ConstTensor positions, int heads,
                   int kv_heads, Tensor absmax) {
  check_rotate("dqkv", stream, dqkv, table, positions, heads, kv_heads);
  if (absmax) check_tensor("absmax", absmax, {1}, DType::fp32);
  const OpLog::Call call(
      stream, memory_op("rope_backward", dqkv.dtype,
                        {rotated(dqkv, heads, kv_heads), rotated(dqkv, heads, kv_heads)}));
  LOCKSTEP_DISPATCH(stream, rope_backward(stream, dqkv, table, positions, heads, kv_heads, absmax));
}

}  // namespace lockstep
