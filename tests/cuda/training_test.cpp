// Whole training steps on a GPU against the CPU's, for each family.
#include "train/training.h"

#include "kernels/attention_cudnn.h"
#include "tests/cuda/twins.h"
#include "train/host_state.h"
#include "train/run_state.h"

namespace lockstep::testing {
namespace {

TrainingConfig tiny(Family family, DType compute) {
  TrainingConfig config;
  config.model = family_defaults(family);
  auto& m = config.model;
  m.layers = 2;
  m.width = 64;
  m.heads = 2;
  m.kv_heads = family == Family::gpt2 ? 2 : 1;
  m.head_size = 32;
  m.mlp_width = 96;
  m.vocabulary = 37;
  m.max_positions = 64;
  m.no_rope_every = std::min<std::int64_t>(m.no_rope_every, 2);
  m.rope_scaling.reset();
  m.init_std = 0.1f;
  config.compute = compute;
  config.sequence_length = 24;
  config.micro_batch_sequences = 2;
  config.global_batch_sequences = 3;  // the last micro-batch is half masked
  config.seed = 5;
  return config;
}

// A training on one device, and its batches; every token follows from the one before.
class Rig {
 public:
  Rig(const TrainingConfig& config, Device device, bool documents = true)
      : config_(config),
        documents_(documents),
        device_(device),
        stream_(device, "test", Stream::Mode::immediate, 2),
        bytes_(measure_training(config, device, 2)),
        arenas_(device, bytes_),
        training_(config, stream_, arenas_),
        batches_(device, Arena::Memory::pinned_host, 1 << 20) {
    training_.initialize();
    const Shape shape{config.micro_batch_sequences, config.sequence_length};
    for (Tensor* t : {&inputs_, &targets_, &positions_, &document_start_})
      *t = batches_.allocate("batch", DType::int32, shape);
  }

  Batch batch(std::int64_t step, std::int64_t micro_step) {
    const auto B = inputs_.shape[0], T = inputs_.shape[1];
    for (std::int64_t b = 0; b < B; ++b) {
      const bool masked = micro_step * B + b >= config_.global_batch_sequences;
      for (std::int64_t t = 0; t < T; ++t) {
        const auto i = b * T + t;
        const auto document = t < T / 3 || !documents_ ? 0 : T / 3;
        const auto token = static_cast<std::int32_t>((step * 7 + b * 5 + t * t) % 37);
        inputs_.as<std::int32_t>()[i] = masked ? 0 : token;
        targets_.as<std::int32_t>()[i] = masked ? -1 : (token * 3 + 1) % 37;
        positions_.as<std::int32_t>()[i] = static_cast<std::int32_t>(t - document);
        document_start_.as<std::int32_t>()[i] = static_cast<std::int32_t>(document);
      }
    }
    return {.inputs = inputs_,
            .targets = targets_,
            .positions = positions_,
            .document_start = documents_ ? document_start_ : Tensor{}};
  }

  Stream& stream() { return stream_; }
  Training::Numbers step(std::int64_t number) {
    training_.begin_step(number, 3e-3);
    for (int m = 0; m < 2; ++m) {
      training_.micro_step(batch(number, m));
      stream_.synchronize();  // the batch is written again
    }
    training_.finish_step();
    return training_.numbers(number);
  }

  Doubles losses(int steps) {
    Doubles all;
    for (int i = 1; i <= steps; ++i)
      all.push_back(step(i).loss);
    return all;
  }

  // All of the state, weights and moments.
  std::vector<std::byte> state() {
    const HostState host(state_slices(training_.params(), training_.optimizer()), stream_);
    host.fetch();
    std::vector<std::byte> bytes;
    for (const auto& slice : host.slices())
      bytes.insert(bytes.end(), slice.local.data, slice.local.data + slice.local.bytes());
    return bytes;
  }

  Training& training() { return training_; }
  const Arenas::Bytes& measured() const { return bytes_; }
  Arenas::Bytes used() const { return arenas_.peak(); }

 private:
  TrainingConfig config_;
  bool documents_;
  Device device_;
  Stream stream_;
  Arenas::Bytes bytes_;
  Arenas arenas_;
  Training training_;
  Arena batches_;
  Tensor inputs_, targets_, positions_, document_start_;
};

constexpr Device kCpu{}, kGpu{Device::Kind::cuda, 0};

class TrainingCuda : public ::testing::TestWithParam<std::tuple<Family, DType>> {
 protected:
  static TrainingConfig config() {
    return tiny(std::get<Family>(GetParam()), std::get<DType>(GetParam()));
  }
};
INSTANTIATE_TEST_SUITE_P(all, TrainingCuda,
                         ::testing::Combine(::testing::Values(Family::gpt2, Family::llama3,
                                                              Family::qwen2, Family::qwen3,
                                                              Family::smollm3),
                                            kFloatTypes),
                         [](const auto& p) {
                           return str(name(std::get<Family>(p.param)), "_",
                                      name(std::get<DType>(p.param)));
                         });

TEST_P(TrainingCuda, losses_are_those_of_the_cpu) {
  const bool is_bf16 = config().compute == DType::bf16;
  Rig cpu(config(), kCpu), gpu(config(), kGpu);
  for (int i = 1; i <= 6; ++i) {
    const auto expected = cpu.step(i), actual = gpu.step(i);
    // Every step starts from weights that differ by the roundings of those before.
    EXPECT_NEAR(actual.loss, expected.loss, (is_bf16 ? 1e-2 : 1e-5) * expected.loss) << i;
    EXPECT_NEAR(actual.grad_norm, expected.grad_norm, (is_bf16 ? 5e-2 : 1e-4) * expected.grad_norm)
        << i;
    EXPECT_EQ(actual.valid_tokens, expected.valid_tokens);
    EXPECT_TRUE(actual.applied);
  }
  const auto expected = cpu.training().evaluate(cpu.batch(1, 0));
  const auto actual = gpu.training().evaluate(gpu.batch(1, 0));
  EXPECT_NEAR(actual.loss, expected.loss, (is_bf16 ? 2e-2 : 1e-4) * expected.loss);
  EXPECT_EQ(actual.tokens, expected.tokens);
}

TEST_P(TrainingCuda, a_second_run_gives_the_same_bits) {
  Rig first(config(), kGpu), second(config(), kGpu);
  EXPECT_EQ(first.losses(3), second.losses(3));
  EXPECT_TRUE(first.state() == second.state());
}

TEST_P(TrainingCuda, a_run_takes_the_memory_that_was_measured) {
  Rig run(config(), kGpu);
  run.step(1);
  run.training().evaluate(run.batch(1, 0));
  EXPECT_EQ(run.used().device, run.measured().device);
  EXPECT_EQ(run.used().pinned, run.measured().pinned);
}

TEST(TrainingCudaOnce, recompute_gives_the_same_bits) {
  auto config = tiny(Family::llama3, DType::bf16);
  Rig kept(config, kGpu);
  const auto losses = kept.losses(3);
  for (const auto recompute : {Recompute::cheap, Recompute::block}) {
    config.recompute = recompute;
    Rig again(config, kGpu);
    EXPECT_EQ(again.losses(3), losses);
    EXPECT_TRUE(again.state() == kept.state());
  }
}

TEST(TrainingCudaOnce, bf16_moments_and_weights_without_masters_train) {
  auto config = tiny(Family::llama3, DType::bf16);
  config.stochastic_rounding = true;
  config.moments = DType::bf16;
  Rig cpu(config, kCpu), gpu(config, kGpu);
  const auto expected = cpu.losses(6), actual = gpu.losses(6);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 2e-2 * expected[i]) << i;
}

// And with recomputing the same bits, in the memory that was measured.
TEST(TrainingCudaOnce, losses_with_cudnn_are_those_of_the_cpu) {
  auto config = tiny(Family::llama3, DType::bf16);
  config.model.head_size = 64;
  Rig cpu(config, kCpu, false);
  config.cudnn_attention = true;
  Rig gpu(config, kGpu, false);
  const auto& m = config.model;
  const auto why_not = prepare_cudnn_attention(
      gpu.stream(),
      {config.micro_batch_sequences, config.sequence_length, m.heads, m.kv_heads, m.head_size});
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  const auto expected = cpu.losses(6), actual = gpu.losses(6);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-2 * expected[i]) << i;
  const auto evaluated = gpu.training().evaluate(gpu.batch(1, 0));
  EXPECT_NEAR(evaluated.loss, cpu.training().evaluate(cpu.batch(1, 0)).loss, 2e-2 * evaluated.loss);
  EXPECT_EQ(gpu.used().device, gpu.measured().device);
  config.recompute = Recompute::block;
  Rig again(config, kGpu, false);
  EXPECT_EQ(again.losses(6), actual);
}

TEST(TrainingCudaOnce, with_cudnn_a_batch_of_documents_is_refused) {
  auto config = tiny(Family::llama3, DType::bf16);
  config.cudnn_attention = true;
  Rig gpu(config, kGpu);
  EXPECT_THROW(gpu.step(1), Error);
}

TEST(TrainingCudaOnce, samples_are_those_of_the_cpu) {
  auto config = tiny(Family::gpt2, DType::fp32);
  config.sample_tokens = 40;
  Rig cpu(config, kCpu), gpu(config, kGpu);
  const std::vector<std::int32_t> prompt{1, 2, 3};
  EXPECT_EQ(gpu.training().sample(prompt, 20, {.temperature = 1.0f, .seed = 3}),
            cpu.training().sample(prompt, 20, {.temperature = 1.0f, .seed = 3}));
}

}  // namespace
}  // namespace lockstep::testing
