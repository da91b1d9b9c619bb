// The fastest algorithm of a matmul is chosen. The simulated cuBLASLt (cublas.cpp) decides which
// one is fastest, and the algorithms differ in bits.
#include <algorithm>
#include <cstdlib>

#include "core/hash.h"
#include "kernels/autotune.h"
#include "kernels/matmul.h"
#include "kernels/matmul_algorithms.h"
#include "tests/cuda/twins.h"
#include "tests/simt/simt.h"

namespace lockstep::testing::choices_test {

class Fastest : public ::testing::Test {
 protected:
  static void set(const char* algorithm) { setenv("LOCKSTEP_SIMT_FASTEST", algorithm, 1); }
  ~Fastest() override { unsetenv("LOCKSTEP_SIMT_FASTEST"); }
};

// The result of one matmul and its chosen algorithm.
struct Chosen {
  ChosenAlgorithms products;
  Doubles y;
};
Chosen choose(const MatmulAlgorithms& recorded = {}, int held = 0) {
  Twins t(3);
  const auto x = t.random({8, 16}, DType::fp32), weight = t.random({8, 16}, DType::fp32);
  const auto y = t.poisoned({8, 8}, DType::fp32);
  const auto run = [&] {
    matmul_forward(t.stream(), t.arena(), y.device, x.device, weight.device);
  };
  Chosen chosen{.products = choose_matmul_algorithms(t.stream(), recorded, run, held), .y = {}};
  run();
  chosen.y = doubles(t.download(y.device));
  return chosen;
}

TEST_F(Fastest, algorithm_is_chosen_and_restored) {
  set("2");
  const auto two = choose();
  set("3");
  const auto three = choose();
  ASSERT_EQ(two.products.measured.size(), 1U);
  const auto& seconds = two.products.measured[0].seconds;
  ASSERT_EQ(seconds.size(), 4U);
  EXPECT_LT(seconds[2], 0.9 * seconds[0]);
  EXPECT_NE(two.products.choices.algorithms, three.products.choices.algorithms);
  EXPECT_NE(two.y, three.y);
  const auto restored = choose(two.products.choices);  // although it is no longer the fastest
  EXPECT_EQ(restored.products.choices.algorithms, two.products.choices.algorithms);
  EXPECT_EQ(restored.y, two.y);
}

TEST_F(Fastest, an_algorithm_that_is_faster_only_by_noise_is_not_chosen) {
  set("0");
  const auto first = choose();
  set("-1");  // algorithm 1 is faster than the first by half a percent
  const auto noise = choose();
  EXPECT_LT(noise.products.measured[0].seconds[1], noise.products.measured[0].seconds[0]);
  EXPECT_EQ(noise.products.choices.algorithms, first.products.choices.algorithms);
  EXPECT_EQ(noise.y, first.y);
}

// The simulated GPU has four multiprocessors.
class Targets : public ::testing::Test {
 protected:
  static void set(const char* target) { setenv("LOCKSTEP_SIMT_TARGET", target, 1); }
  ~Targets() override { unsetenv("LOCKSTEP_SIMT_TARGET"); }

  static const std::string& text(const Chosen& chosen) {
    EXPECT_EQ(chosen.products.choices.algorithms.size(), 1U);
    return chosen.products.choices.algorithms.begin()->second;
  }
  static MatmulAlgorithms with(MatmulAlgorithms record, const std::string& text) {
    record.algorithms.begin()->second = text;
    return record;
  }
  // The record of algorithm 2; or of bytes that are no algorithm.
  static std::string algorithm(const std::string& target, bool is_known = true) {
    const std::string bytes =
        is_known ? "\x53\x51" + std::string(62, '\0') : std::string(64, '\xff');
    const std::string hashed = bytes + target;
    return (is_known ? "5351" + std::string(124, '0') : std::string(128, 'f')) +
           hash_hex(std::as_bytes(std::span(hashed))).substr(0, 16) +
           (target.empty() ? "" : "@" + target);
  }
};

TEST_F(Targets, are_not_measured_if_no_or_all_multiprocessors_are_held) {
  set("3");
  for (const int held : {0, 4, 16}) {
    const auto chosen = choose({}, held);
    EXPECT_EQ(text(chosen), algorithm(""));
    EXPECT_EQ(chosen.products.measured.at(0).seconds.size(), 4U);
  }
}

TEST_F(Targets, are_chosen_if_they_are_faster_and_restored) {
  const auto whole = choose();
  const auto slow = choose({}, 1);  // the target is not faster
  EXPECT_EQ(text(slow), algorithm(""));
  EXPECT_EQ(slow.y, whole.y);
  set("3");
  const auto three = choose({}, 1);
  EXPECT_EQ(text(three), algorithm("3"));
  EXPECT_NE(three.y, whole.y);
  const auto& seconds = three.products.measured.at(0).seconds;
  ASSERT_EQ(seconds.size(), 8U);
  EXPECT_LT(seconds[6], 0.6 * seconds[2]);
  set("2");
  EXPECT_EQ(text(choose({}, 2)), algorithm("2"));
  for (const int held : {0, 1, 2}) {
    const auto restored = choose(three.products.choices, held);
    EXPECT_TRUE(restored.products.measured.empty());
    EXPECT_EQ(text(restored), text(three));
    EXPECT_EQ(restored.y, three.y);
    const auto without = choose(whole.products.choices, held);
    EXPECT_TRUE(without.products.measured.empty());
    EXPECT_EQ(text(without), algorithm(""));
    EXPECT_EQ(without.y, whole.y);
  }
}

TEST_F(Targets, in_a_damaged_or_impossible_record_are_measured_again) {
  const auto whole = choose();
  const auto record = whole.products.choices;
  const auto three = algorithm("3"), hex = algorithm("");
  for (const auto& bad :
       {hex + "@3", hex + "@", three + "0", three + "@3", three.substr(0, 145), algorithm("0"),
        algorithm("4"), algorithm("-1"), algorithm("03"), algorithm("3x"), algorithm("99999999999"),
        three.substr(0, 145) + "2", algorithm("3", false)}) {
    const auto chosen = choose(with(record, bad));
    EXPECT_EQ(chosen.products.refused.size(), 1U) << bad;
    EXPECT_EQ(text(chosen), algorithm("")) << bad;
    EXPECT_EQ(chosen.y, whole.y) << bad;
  }
  EXPECT_TRUE(choose(with(record, three)).products.refused.empty());
}

// The matmuls of a layer with GELU. Their epilogues take some microseconds more than a plain
// matmul.
class Epilogues : public ::testing::Test {
 protected:
  static void set(const char* microseconds) { setenv("LOCKSTEP_SIMT_EPILOGUE", microseconds, 1); }
  static void plant(const std::string& error) {
    setenv("LOCKSTEP_SIMT_CUBLASLT_ERROR", error.c_str(), 1);
  }
  static void plant_none() { unsetenv("LOCKSTEP_SIMT_CUBLASLT_ERROR"); }
  ~Epilogues() override {
    unsetenv("LOCKSTEP_SIMT_EPILOGUE");
    plant_none();
  }

  struct Result {
    ChosenAlgorithms products;
    std::vector<Doubles> values;
    std::uint64_t nanoseconds = 0;  // of a matmul that is not in run(), but may have been measured
  };
  // step_error: the argument of plant() for the step after the choice.
  static Result choose(const MatmulAlgorithms& recorded = {}, const std::string& step_error = {}) {
    constexpr auto bf16 = DType::bf16;
    Twins t(3);
    const auto x = t.random({8, 16}, bf16), weight = t.random({8, 16}, bf16),
               bias = t.random({8}, bf16), dy = t.random({8, 8}, bf16);
    const auto y = t.poisoned({8, 8}, bf16), pre = t.random({8, 8}, bf16),
               dx = t.poisoned({8, 16}, bf16), before = t.random({8, 16}, bf16);
    const auto dweight = t.random({8, 16}, DType::fp32), dbias = t.random({8}, DType::fp32);
    const auto run = [&] {
      auto& s = t.stream();
      auto& a = t.arena();
      matmul_forward(s, a, y.device, x.device, weight.device,
                     {.bias = bias.device, .pre_gelu = pre.device});
      matmul_backward_input(s, a, dx.device, dy.device, weight.device, before.device);
      matmul_backward_weight(s, a, dweight.device, dbias.device, dy.device, x.device);
    };
    Result result{.products = choose_matmul_algorithms(t.stream(), recorded, run), .values = {}};
    const auto begin = simt::device_nanoseconds();
    matmul_forward(t.stream(), t.arena(), pre.device, x.device, weight.device);
    result.nanoseconds = simt::device_nanoseconds() - begin;
    t.upload(dweight.device, dweight.host);  // the measurements added to them
    t.upload(dbias.device, dbias.host);
    if (!step_error.empty()) plant(step_error);
    run();
    plant_none();
    for (const Twin& of : {y, pre, dx, dweight, dbias})
      result.values.push_back(doubles(t.download(of.device)));
    return result;
  }
  static std::int64_t unfused(const Result& result) {
    return std::count_if(result.products.choices.algorithms.begin(),
                         result.products.choices.algorithms.end(),
                         [](const auto& choice) { return choice.second == "unfused"; });
  }
};

TEST_F(Epilogues, that_are_slow_are_not_used_even_after_a_resume) {
  set("0");
  const auto fused = choose();
  EXPECT_EQ(fused.products.choices.algorithms.size(), 3U);  // no matmul that was only measured
  EXPECT_EQ(fused.products.measured.size(), 3U);
  EXPECT_EQ(unfused(fused), 0);
  EXPECT_GE(fused.nanoseconds, 100'000U);  // the first candidate, although others were measured
  set("500");
  const auto plain = choose();
  // Forward has GELU with bias, only bias, and neither; each of the two gradients is with and
  // without its epilogue.
  EXPECT_EQ(plain.products.choices.algorithms.size(), 7U);
  EXPECT_EQ(unfused(plain), 4);
  for (std::size_t i = 0; i < plain.values.size(); ++i)
    for (std::size_t j = 0; j < plain.values[i].size(); ++j)
      EXPECT_NEAR(plain.values[i][j], fused.values[i][j], 0.05) << i << ": " << j;
  set("0");
  const auto restored = choose(plain.products.choices);
  EXPECT_TRUE(restored.products.measured.empty());
  EXPECT_TRUE(restored.products.refused.empty());
  EXPECT_EQ(restored.products.choices.algorithms, plain.products.choices.algorithms);
  EXPECT_EQ(restored.values, plain.values);
  EXPECT_EQ(choose(fused.products.choices).values, fused.values);
}

TEST_F(Epilogues, a_matmul_without_one_cannot_be_unfused) {
  set("500");
  auto recorded = choose().products.choices;
  for (auto& [product, algorithm] : recorded.algorithms)
    algorithm = "unfused";
  EXPECT_EQ(choose(recorded).products.refused.size(), 3U);
}

// cuBLASLt returns an error while algorithms are chosen, or later. Then matmuls with an epilogue
// are computed without one, or the error is thrown.
TEST_F(Epilogues, are_unsupported_only_if_cublaslt_rejects_the_call) {
  const auto fused = choose();
  const auto error_of = [&](FunctionRef<Result()> run) -> std::string {
    try {
      const auto result = run();
      for (std::size_t i = 0; i < result.values.size(); ++i)
        for (std::size_t j = 0; j < result.values[i].size(); ++j)
          EXPECT_NEAR(result.values[i][j], fused.values[i][j], 0.05) << i << ": " << j;
      return "none";
    } catch (const Error& error) {
      plant_none();
      return error.what();
    }
  };
  struct Case {
    int status;
    bool passes_choice, passes_step;
    const char* name;
  };
  for (const Case c : {Case{15, true, true, "NOT_SUPPORTED"},
                       {7, true, false, "CUBLAS_STATUS_INVALID_VALUE"},
                       {8, true, false, "ARCH_MISMATCH"},
                       {3, false, false, "CUBLAS_STATUS_ALLOC_FAILED"},
                       {14, false, false, "CUBLAS_STATUS_INTERNAL_ERROR"}}) {
    SCOPED_TRACE(c.name);
    const auto expect = [&](const std::string& error, bool passes, const std::string& call) {
      EXPECT_EQ(error == "none", passes) << call << ": " << error;
      EXPECT_TRUE(passes || error.find("cublasLtMatmul" + call) != std::string::npos) << error;
    };
    for (const std::string call : {"AlgoGetHeuristic", ""}) {
      plant(str(call, ':', c.status));
      expect(error_of([&] { return choose(); }), c.passes_choice, call);
    }
    plant(str("AlgoCheck:", c.status));
    expect(error_of([&] {
             auto result = choose(fused.products.choices);
             EXPECT_EQ(result.products.refused.size(), 3U);
             return result;
           }),
           c.passes_choice, "AlgoCheck");
    ::testing::internal::CaptureStderr();
    const auto error = error_of([&] { return choose({}, str(':', c.status)); });
    const auto log = ::testing::internal::GetCapturedStderr();
    expect(error, c.passes_step, "");
    EXPECT_EQ(log.find("does not support the algorithm") != std::string::npos, c.passes_step)
        << log;
  }
}

TEST(FindFastest, unsupported_ways_are_skipped) {
  Stream stream({Device::Kind::cuda, 0}, "test");
  const auto among = [&](const std::vector<int>& microseconds) {  // negative: unsupported
    return find_fastest(stream, static_cast<int>(microseconds.size()), [&](int way) {
      const int time = microseconds[static_cast<std::size_t>(way)];
      if (time >= 0) simt::pass_time(static_cast<std::uint64_t>(time) * 1000);
      return time >= 0;
    });
  };
  EXPECT_EQ(among({}).way, -1);
  EXPECT_EQ(among({-1, -1}).way, -1);
  EXPECT_EQ(among({-1, 70, 50, 90}).way, 2);
  EXPECT_EQ(among({-1, 70, 70}).way, 1);
  EXPECT_EQ(among({50, 90, 40}).way, 2);
  const auto found = among({-1, 70, 50});
  EXPECT_TRUE(std::isinf(found.seconds[0]));
  EXPECT_NEAR(found.seconds[1], 70e-6, 1e-9);
  EXPECT_NEAR(found.seconds[2], 50e-6, 1e-9);
}

}  // namespace lockstep::testing::choices_test
