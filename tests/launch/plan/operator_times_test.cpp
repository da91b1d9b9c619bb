#include "launch/plan/operator_times.h"

#include <gtest/gtest.h>

#include "tests/train/training_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::operator_times_test {

Op product(std::int64_t M, std::int64_t N, std::int64_t K) {
  Op op;
  op.name = "matmul_forward";
  op.kind = Op::Kind::product;
  op.sizes = {M, N, K, 0};
  op.flops = 2.0 * static_cast<double>(M * N * K);
  op.bytes = 4 * (M * N + M * K + K * N);
  return op;
}

OperatorTimes times_of(std::initializer_list<std::pair<Op, double>> calls) {
  Json::Array all;
  for (const auto& [op, seconds] : calls) {
    Json::Array sizes;
    for (const auto size : op.sizes)
      sizes.emplace_back(size);
    all.emplace_back(Json::Object{{"operator", op.name},
                                  {"type", name(op.dtype)},
                                  {"bytes", op.bytes},
                                  {"calls", 1},
                                  {"seconds", seconds},
                                  {"sizes", sizes},
                                  {"flops", op.flops}});
  }
  return OperatorTimes::parse(all);
}

TEST(OperatorTimes, a_measured_call_has_its_measured_time) {
  const auto times = times_of({{product(64, 64, 64), 1e-3}, {product(128, 64, 64), 5e-3}});
  EXPECT_EQ(times.seconds(product(64, 64, 64)), 1e-3);
  EXPECT_EQ(times.seconds(product(128, 64, 64)), 5e-3);
  EXPECT_EQ(times.seconds(Op{.name = "gelu_forward"}), std::nullopt);
  Op other = product(64, 64, 64);
  other.dtype = DType::bf16;
  EXPECT_EQ(times.seconds(other), std::nullopt);
}

TEST(OperatorTimes, other_sizes_are_interpolated_and_extrapolated) {
  const auto times = times_of({{product(64, 64, 64), 1e-3}, {product(1024, 64, 64), 4e-3}});
  // A quarter of the way to 16 times the work, in logarithms: 4^(1/4) times the seconds.
  EXPECT_NEAR(*times.seconds(product(128, 64, 64)), 1e-3 * std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(*times.seconds(product(2048, 64, 64)), 8e-3, 1e-9);
  EXPECT_NEAR(*times.seconds(product(32, 64, 64)), 0.5e-3, 1e-9);
}

TEST(OperatorTimes, times_of_a_logged_step_cover_all_its_calls_and_read_back_as_written) {
  Rig rig(tiny());
  std::vector<OpLog> logs(3);
  std::vector<const OpLog*> all;
  for (auto& log : logs) {
    rig.bench.stream.set_op_log(&log);
    rig.step(1 + static_cast<std::int64_t>(all.size()), 1e-3);
    all.push_back(&log);
  }
  rig.bench.stream.set_op_log(nullptr);
  const OperatorTimes times(all);
  const auto again = OperatorTimes::parse(Json::parse(times.to_json().dump(), "times"));
  double sum = 0;
  int calls = 0;
  for (const auto& entry : logs.front().entries()) {
    if (entry.what != OpLog::What::op) continue;
    const auto seconds = times.seconds(entry.op);
    ASSERT_TRUE(seconds) << entry.op.name;
    EXPECT_DOUBLE_EQ(*again.seconds(entry.op), *seconds) << entry.op.name;
    sum += *seconds;
    ++calls;
  }
  EXPECT_GT(calls, 50);
  EXPECT_GT(sum, 0);
}

// A clock that is too coarse measures such times.
TEST(OperatorTimes, interpolation_is_finite_if_a_measured_time_or_size_is_zero) {
  for (const auto* first :
       {R"("seconds": 0, "flops": 2, "bytes": 8)", R"("seconds": 1, "flops": 0, "bytes": 0)"}) {
    const auto times = OperatorTimes::parse(Json::parse(
        str(R"([{"operator": "x", "type": "fp32", "calls": 1, "sizes": [1, 1, 1, 0], )", first,
            R"(}, {"operator": "x", "type": "fp32", "calls": 1, "sizes": [9, 9, 9, 0],
                   "seconds": 1, "flops": 1458, "bytes": 99}])"),
        "times"));
    Op op;
    op.name = "x";
    op.kind = Op::Kind::product;
    op.flops = 54;
    op.bytes = 40;
    const auto seconds = times.seconds(op);
    ASSERT_TRUE(seconds);
    EXPECT_TRUE(*seconds >= 0 && *seconds <= 1) << *seconds;
  }
}

TEST(OperatorTimes, an_invalid_list_is_rejected) {
  for (const char* text :
       {R"([{"operator": "x"}])", R"([{"operator": "x", "type": "fp64"}])",
        R"([{"operator": "x", "type": "fp32", "bytes": -1}])",
        R"([{"operator": "x", "type": "fp32", "bytes": 1, "calls": 1, "seconds": -1}])",
        R"([{"operator": "x", "type": "fp32", "bytes": 1, "calls": 1, "seconds": 1e308}])",
        R"([{"operator": "x", "type": "fp32", "bytes": 1, "calls": 1, "seconds": 1, "second": 1}])",
        R"([{"operator": "x", "type": "fp32", "bytes": 1, "calls": 1, "seconds": 1,
             "sizes": [1, -1, 1, 0], "flops": 1}])",
        R"([{"operator": "x", "type": "fp32", "bytes": 1, "calls": 1, "seconds": 1,
             "sizes": [1, 1, 1, 0], "flops": 1e308}])"})
    expect_refusal<DataError>("launch/operator_times", text, {},
                              [&] { OperatorTimes::parse(Json::parse(text, "times")); });
}

}  // namespace lockstep::testing::operator_times_test
