// Compares models of every family on a GPU with PyTorch (the fixtures of tests/oracle), within the
// tolerances of the CPU.
#include "tests/model/oracle.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::oracle_test {

// OnGpu runs the model of a fixture on a GPU and copies its results to the model of the CPU.
class OnGpu {
 public:
  OnGpu(Loaded& loaded, DType dtype)
      : loaded_(loaded),
        params_(comms_, {.compute_dtype = dtype}),
        transformer_(params_, loaded.oracle.config, {}) {
    params_.allocate(twins_.arena(), twins_.stream());
    each_shard(
        [&](ParamShard& here, ParamShard& there) { twins_.upload(here.weight, there.weight); });
    transformer_.allocate(twins_.arena(), step(), 1);
  }

  Computed compute() {
    const auto& m = loaded_.model;
    const auto inputs = integers(m.batch.inputs);
    const Twin logits = twins_.poisoned({m.B * m.T, stored_vocabulary(loaded_.oracle.config)},
                                        DType::fp32),
               loss_sum = twins_.random({1}, DType::fp32, 0.0f),
               valid_tokens = twins_.integers({0});
    transformer_.predict(step(), logits.device, inputs);
    params_.begin_step(twins_.stream());
    transformer_.forward(step(), 0, inputs,
                         {.ids = integers(m.batch.targets),
                          .loss_sum = loss_sum.device,
                          .valid_tokens = valid_tokens.device,
                          .gradient_scale = loaded_.gradient_scale()},
                         /*last=*/true);
    transformer_.backward(step(), 0, inputs, /*last=*/true);
    params_.finish_backward(twins_.stream());
    each_shard([&](ParamShard& here, ParamShard& there) {
      const auto grad = twins_.download(here.grad);
      std::copy(grad.data, grad.data + grad.bytes(), there.grad.data);
    });
    return {twins_.download(logits.device), get(twins_.download(loss_sum.device), 0),
            static_cast<int>(get(twins_.download(valid_tokens.device), 0)),
            loaded_.model.gradients()};
  }

  // -log p(target) of the last n tokens of each sequence, with the earlier ones in a cache.
  Doubles scores(std::int64_t n) {
    const auto& m = loaded_.model;
    const auto cache = transformer_.allocate_cache(twins_.arena(), twins_.stream(), m.B, m.T);
    transformer_.prefill(tokens(0, m.T - n), columns(m.batch.inputs, 0, m.T - n), cache);
    const Twin losses = twins_.poisoned({m.B * n}, DType::fp32);
    transformer_.score(tokens(m.T - n, n), losses.device, columns(m.batch.inputs, m.T - n, n),
                       columns(m.batch.targets, m.T - n, n), cache);
    return doubles(twins_.download(losses.device));
  }
  // The same, from the logits of all tokens at once.
  Doubles losses_of_logits(std::int64_t n) {
    const auto& m = loaded_.model;
    const auto stored = stored_vocabulary(loaded_.oracle.config);
    const Twin logits = twins_.poisoned({m.B * m.T, stored}, DType::fp32);
    transformer_.predict(tokens(0, m.T), logits.device, integers(m.batch.inputs));
    const auto all = doubles(twins_.download(logits.device));
    Doubles losses;
    for (std::int64_t row = 0; row < m.B * m.T; ++row) {
      if (row % m.T < m.T - n) continue;
      const auto* values = all.data() + row * stored;
      double sum = 0;
      for (std::int64_t v = 0; v < loaded_.oracle.config.vocabulary; ++v)
        sum += std::exp(values[v]);
      const auto target = m.batch.targets[static_cast<std::size_t>(row)];
      losses.push_back(target < 0 ? 0 : std::log(sum) - values[target]);
    }
    return losses;
  }

 private:
  // The n values from `first` on of each sequence.
  Tensor columns(const std::vector<std::int32_t>& values, std::int64_t first, std::int64_t n) {
    std::vector<std::int32_t> some;
    for (std::int64_t b = 0; b < loaded_.model.B; ++b)
      for (std::int64_t t = first; t < first + n; ++t)
        some.push_back(values[static_cast<std::size_t>(b * loaded_.model.T + t)]);
    return integers(some);
  }
  // A step with these tokens, without documents.
  StepContext tokens(std::int64_t first, std::int64_t n) {
    std::vector<std::int32_t> positions;
    for (std::int64_t i = 0; i < loaded_.model.B * n; ++i)
      positions.push_back(static_cast<std::int32_t>(first + i % n));
    auto some = step();
    some.positions = integers(positions, {loaded_.model.B, n});
    some.document_start = {};
    return some;
  }
  Tensor integers(const std::vector<std::int32_t>& values, Shape shape = {}) {
    return twins_.integers(values, shape).device;
  }
  StepContext step() {
    const auto& m = loaded_.model;
    std::vector<std::int32_t> positions;
    for (std::int64_t n = 0; n < m.B * m.T; ++n)
      positions.push_back(static_cast<std::int32_t>(n % m.T) -
                          m.batch.document_start[static_cast<std::size_t>(n)]);
    return {.compute = twins_.stream(),
            .scratch = scratch_,
            .params = params_,
            .comms = comms_,
            .positions = integers(positions, {m.B, m.T}),
            .document_start = integers(m.batch.document_start, {m.B, m.T}),
            .rope_table = {}};
  }
  template <class Visit>
  void each_shard(Visit&& visit) {
    const auto here = params_.shards(), there = loaded_.model.params.shards();
    for (std::size_t i = 0; i < here.size(); ++i)
      visit(here[i], there[i]);
  }

  Loaded& loaded_;
  Twins twins_{1};
  Arena scratch_{Device{Device::Kind::cuda, 0}, Arena::Memory::device, std::int64_t{64} << 20};
  Comms comms_ = make_comms();
  ParamStore params_;
  Transformer transformer_;
};

class PyTorchCuda : public ::testing::TestWithParam<Family> {};

TEST_P(PyTorchCuda, fp32_logits_loss_and_every_gradient_agree) {
  Loaded loaded(GetParam(), DType::fp32);
  loaded.expect_fp32(OnGpu(loaded, DType::fp32).compute());
}

TEST_P(PyTorchCuda, bf16_is_as_close_to_fp32_as_pytorch_in_bf16) {
  Loaded loaded(GetParam(), DType::bf16);
  loaded.expect_bf16(OnGpu(loaded, DType::bf16).compute());
}

TEST_P(PyTorchCuda, scores_with_a_cache_equal_those_from_all_logits) {
  Loaded loaded(GetParam(), DType::fp32);
  OnGpu gpu(loaded, DType::fp32);
  const auto expected = gpu.losses_of_logits(4);
  EXPECT_GT(std::count_if(expected.begin(), expected.end(), [](double x) { return x > 0; }), 4);
  expect_close(gpu.scores(4), expected, 1e-5, "scores");
}

INSTANTIATE_TEST_SUITE_P(all, PyTorchCuda, ::testing::ValuesIn(kFamilies),
                         [](const auto& p) { return std::string(name(p.param)); });

}  // namespace lockstep::testing::oracle_test
