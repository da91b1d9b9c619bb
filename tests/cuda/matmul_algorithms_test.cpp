// The choice of matmul algorithms: it is recorded and restored, except if cuBLASLt rejects it.
#include "kernels/matmul_algorithms.h"

#include "core/hash.h"
#include "kernels/matmul.h"
#include "tests/cuda/twins.h"

namespace lockstep::testing::matmul_algorithms_test {

// The matmuls of one linear layer, on a separate stream.
class Layer {
 public:
  explicit Layer(DType dtype)
      : x_(t_.random({24, 32}, dtype)),
        weight_(t_.random({16, 32}, dtype)),
        y_(t_.poisoned({24, 16}, dtype)),
        dweight_(t_.poisoned({16, 32}, DType::fp32)) {}

  ChosenAlgorithms choose(const MatmulAlgorithms& recorded = {}, int held = 0) {
    const auto all = [&] { run(); };
    return choose_matmul_algorithms(t_.stream(), recorded, all, held);
  }
  void run() {
    matmul_forward(t_.stream(), t_.arena(), y_.device, x_.device, weight_.device);
    matmul_backward_weight(t_.stream(), t_.arena(), dweight_.device, {}, y_.device, x_.device);
  }
  // Compares the result with the host, and returns it.
  Tensor forward() {
    t_.run([&](const Side& on) {
      matmul_forward(on.stream, on.scratch, on(y_), on(x_), on(weight_));
    });
    t_.expect_close(y_, "y", 6);
    return t_.download(y_.device);
  }

 private:
  Twins t_{1};
  Twin x_, weight_, y_, dweight_;
};

struct MatmulAlgorithmsCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, MatmulAlgorithmsCuda, kFloatTypes, dtype_name);

TEST_P(MatmulAlgorithmsCuda, each_matmul_is_measured_once_and_equals_the_cpu) {
  Layer layer(GetParam());
  const auto chosen = layer.choose();
  ASSERT_EQ(chosen.choices.algorithms.size(), 2U);
  ASSERT_EQ(chosen.measured.size(), 2U);
  EXPECT_GT(chosen.choices.cublaslt, 0);
  EXPECT_TRUE(chosen.refused.empty());
  for (const auto& measured : chosen.measured) {
    EXPECT_TRUE(chosen.choices.algorithms.contains(measured.product)) << measured.product;
    ASSERT_FALSE(measured.seconds.empty());
    EXPECT_GT(measured.seconds.front(), 0);
  }
  layer.forward();
}

TEST_P(MatmulAlgorithmsCuda, recorded_algorithms_are_restored_and_give_the_same_bits) {
  Layer layer(GetParam()), again(GetParam());
  const auto chosen = layer.choose();
  const auto restored = again.choose(chosen.choices);
  EXPECT_TRUE(restored.measured.empty());
  EXPECT_TRUE(restored.refused.empty());
  EXPECT_EQ(restored.choices.algorithms, chosen.choices.algorithms);
  expect_bitwise_equal(again.forward(), layer.forward(), "y");
}

TEST_P(MatmulAlgorithmsCuda, more_are_measured_beside_held_multiprocessors) {
  Layer layer(GetParam()), again(GetParam());
  const auto alone = again.choose(), beside = layer.choose({}, 1);
  ASSERT_EQ(beside.measured.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_GT(beside.measured[i].seconds.size(), alone.measured[i].seconds.size());
  const auto restored = again.choose(beside.choices);
  EXPECT_TRUE(restored.measured.empty());
  EXPECT_EQ(restored.choices.algorithms, beside.choices.algorithms);
  expect_bitwise_equal(again.forward(), layer.forward(), "y");
}

TEST_P(MatmulAlgorithmsCuda, matmuls_are_measured_again_for_another_library_version) {
  Layer layer(GetParam());
  auto recorded = layer.choose().choices;
  ++recorded.cublaslt;
  const auto chosen = layer.choose(recorded);
  EXPECT_EQ(chosen.measured.size(), 2U);
  EXPECT_EQ(chosen.choices.cublaslt, recorded.cublaslt - 1);
}

// Bytes that are not an algorithm, with their right hash. A real cuBLASLt does not get them.
std::string unknown() {
#ifdef LOCKSTEP_SIMT
  const std::vector<std::byte> bytes(64, std::byte{0xff});
  return std::string(128, 'f') + hash_hex(bytes).substr(0, 16);
#else
  return {};
#endif
}

TEST_P(MatmulAlgorithmsCuda, damaged_records_are_rejected_and_measured_again) {
  const auto choices = Layer(GetParam()).choose().choices;
  const auto& good = choices.algorithms.begin()->second;
  for (const auto& bad : {std::string(), good.substr(2), good + "00", "-1" + good.substr(2),
                          "g0" + good.substr(2), std::string(good.size(), 'f'), unknown()}) {
    auto recorded = choices;
    recorded.algorithms.begin()->second = bad;
    recorded.algorithms["a product that no layer has"] = good;
    Layer layer(GetParam());
    const auto chosen = layer.choose(recorded);
    EXPECT_EQ(chosen.refused, std::vector{choices.algorithms.begin()->first}) << bad;
    ASSERT_EQ(chosen.measured.size(), 1U) << bad;
    EXPECT_EQ(chosen.measured[0].product, chosen.refused[0]) << bad;
    EXPECT_EQ(chosen.choices.algorithms.size(), 2U) << bad;
    EXPECT_EQ(chosen.choices.algorithms.begin()->second.size(), good.size()) << bad;
    layer.forward();
  }
}

}  // namespace lockstep::testing::matmul_algorithms_test
