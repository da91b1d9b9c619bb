#include "kernels/adamw.h"

#include <algorithm>

#include "kernels/check.h"

namespace lockstep {
namespace {

void check(const AdamWScalars& scalars) {
  check_tensor("learning_rate", scalars.learning_rate, {1}, DType::fp32);
  check_tensor("step", scalars.step, {1}, DType::int32);
  check_tensor("updates", scalars.updates, {1}, DType::int32);
  check_tensor("control", scalars.control, {5}, DType::fp32);
  if (scalars.absmax) check_dtype("absmax", scalars.absmax, DType::fp32);
}

void check(const AdamWRun& run, const AdamWRun& first) {
  const auto n = run.weight.elements();
  check_dtype("weight", run.weight, first.weight.dtype);
  check_dtype("m", run.m, first.m.dtype);
  check_tensor("v", run.v, run.m.shape, run.m.dtype);
  check_dtype("grad", run.grad, DType::fp32);
  LOCKSTEP_CHECK(run.m.elements() == n && run.grad.elements() == n, "weight has ", n,
                 " elements, m ", run.m.elements(), ", grad ", run.grad.elements(),
                 ", expected the same number");
  LOCKSTEP_CHECK(bool(run.master) == bool(first.master),
                 "one run has master weights and another has none");
  if (run.master) {
    check_dtype("master weight", run.master, DType::fp32);
    LOCKSTEP_CHECK(run.master.elements() == n, "weight has ", n, " elements, master weight ",
                   run.master.elements(), ", expected the same number");
  }
  if (run.absmax) check_tensor("absmax", run.absmax, {1}, DType::fp32);
  constexpr auto kMost = std::int64_t{1} << 35;
  LOCKSTEP_CHECK(0 <= run.first_index && run.first_index + n <= kMost, "elements [",
                 run.first_index, ", ", run.first_index + n,
                 ") of a parameter, expected at most 2^35");
  const auto& [first_column, count, stride] = run.columns;
  if (count == 0) return;
  LOCKSTEP_CHECK(
      0 < count && 0 <= first_column && count <= stride && stride < std::int64_t{1} << 28,
      "columns ", first_column, "+", count, " of rows of ", stride,
      ", expected some within a row of less than 2^28");
  const auto row = std::max<std::int64_t>(run.first_index + n - 1, 0) / count;
  LOCKSTEP_CHECK(first_column < kMost && row < kMost / stride, "row ", row, " of ", stride,
                 " columns, expected at most 2^35 elements");
}

}  // namespace

void adamw_control(Stream& stream, const AdamWScalars& scalars, const AdamWSums& sums,
                   const AdamWConfig& config) {
  check(scalars);
  check_tensor("squares", sums.squares, {1}, DType::fp32);
  check_tensor("loss", sums.loss, {1}, DType::fp32);
  check_tensor("valid_tokens", sums.valid_tokens, {1}, DType::int32);
  LOCKSTEP_CHECK(config.nominal_tokens >= 1, "nominal_tokens is ", config.nominal_tokens,
                 ", expected at least 1");
  LOCKSTEP_DISPATCH(stream, adamw_control(stream, scalars, sums, config));
}

void adamw_update(Stream& stream, std::span<const AdamWRun> runs, const AdamWScalars& scalars,
                  const AdamWConfig& config) {
  check(scalars);
  if (runs.empty()) return;
  check_float("weight", runs.front().weight);
  check_float("m", runs.front().m);
  for (const AdamWRun& run : runs)
    check(run, runs.front());
  Op op = memory_op("adamw_update", runs.front().weight.dtype, {});
  for (const AdamWRun& run : runs)  // master, m and v are read and written
    op.bytes += bytes_of({run.weight, run.grad, run.m, run.m, run.v, run.v, run.master,
                          run.master ? run.master : run.weight});
  const OpLog::Call call(stream, op);
  LOCKSTEP_DISPATCH(stream, adamw_update(stream, runs, scalars, config));
}

}  // namespace lockstep
