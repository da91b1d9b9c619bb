// Compares whole training steps on a GPU with those of the CPU, for each family.
#include "train/step/training.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/integer.h"
#include "kernels/attention_cudnn.h"
#include "tests/cuda/twins.h"
#include "tests/files.h"
#ifdef LOCKSTEP_SIMT
#include "tests/simt/simt.h"
#endif
#include "train/step/host_staging.h"
#include "train/step/state_slices.h"

namespace lockstep::testing::training_test {

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

// Rig owns a Training on one device and its batches. Every token follows from the one before.
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

  void enqueue_evaluation(std::int64_t number) {
    training_.evaluate(batch(number, 0)).synchronize();  // the batch is written again
  }
  LossSum evaluate(std::int64_t number) {
    enqueue_evaluation(number);
    return training_.evaluated();
  }

  Doubles losses(int steps) { return losses(1, steps); }
  Doubles losses(std::int64_t from, std::int64_t to) {
    Doubles all;
    for (auto i = from; i <= to; ++i)
      all.push_back(step(i).loss);
    return all;
  }

  // Chooses matmul algorithms as a run does at its start.
  MatmulAlgorithms choose(const MatmulAlgorithms& recorded = {}) {
    const auto chosen = training_.choose_matmul_algorithms(recorded);
    EXPECT_EQ(chosen.measured.size(),
              recorded.algorithms.empty() ? chosen.choices.algorithms.size() : 0);
    training_.initialize();
    return chosen.choices;
  }

  // All of the state, weights and moments.
  std::vector<std::byte> state() {
    HostStaging host(state_slices(training_.params(), training_.optimizer()), stream_);
    host.take();
    host.taken().synchronize();
    std::vector<std::byte> bytes;
    for (const auto& slice : host.slices())
      bytes.insert(bytes.end(), slice.local.data, slice.local.data + slice.local.bytes());
    return bytes;
  }

  void load(const std::vector<std::byte>& state) {
    HostStaging host(state_slices(training_.params(), training_.optimizer()), stream_);
    std::size_t begin = 0;
    for (const auto& slice : host.slices()) {
      const auto bytes = static_cast<std::size_t>(slice.local.bytes());
      std::copy_n(&state.at(begin), bytes, slice.local.data);
      begin += bytes;
    }
    host.send();
    training_.params().refresh_weights(stream_);
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
using FamilyAndType = std::tuple<Family, DType>;
const FamilyAndType kOften[] = {{Family::gpt2, DType::bf16}, {Family::qwen3, DType::fp32}};
std::vector<FamilyAndType> all_but_those_often() {
  std::vector<FamilyAndType> rest;
  for (const auto family :
       {Family::gpt2, Family::llama3, Family::qwen2, Family::qwen3, Family::smollm3})
    for (const auto dtype : {DType::fp32, DType::bf16})
      if (std::ranges::find(kOften, FamilyAndType{family, dtype}) == std::end(kOften))
        rest.emplace_back(family, dtype);
  return rest;
}
const auto kFamilyAndType = [](const ::testing::TestParamInfo<FamilyAndType>& p) {
  return str(name(std::get<Family>(p.param)), "_", name(std::get<DType>(p.param)));
};
INSTANTIATE_TEST_SUITE_P(all, TrainingCuda, ::testing::ValuesIn(kOften), kFamilyAndType);
INSTANTIATE_TEST_SUITE_P(full_rest, TrainingCuda, ::testing::ValuesIn(all_but_those_often()),
                         kFamilyAndType);

TEST_P(TrainingCuda, losses_are_those_of_the_cpu) {
  const bool is_bf16 = config().compute == DType::bf16;
  Rig cpu(config(), kCpu), gpu(config(), kGpu);
  for (int i = 1; i <= 6; ++i) {
    const auto expected = cpu.step(i), actual = gpu.step(i);
    // Every step starts from weights that differ by the roundings of earlier steps.
    EXPECT_NEAR(actual.loss, expected.loss, (is_bf16 ? 1e-2 : 1e-5) * expected.loss) << i;
    EXPECT_NEAR(actual.grad_norm, expected.grad_norm, (is_bf16 ? 5e-2 : 1e-4) * expected.grad_norm)
        << i;
    EXPECT_EQ(actual.valid_tokens, expected.valid_tokens);
    EXPECT_TRUE(actual.applied);
  }
  const auto expected = cpu.evaluate(1);
  const auto actual = gpu.evaluate(1);
  EXPECT_NEAR(actual.loss, expected.loss, (is_bf16 ? 2e-2 : 1e-4) * expected.loss);
  EXPECT_EQ(actual.tokens, expected.tokens);
}

TEST_P(TrainingCuda, a_second_run_gives_the_same_bits) {
  Rig first(config(), kGpu), second(config(), kGpu);
  EXPECT_EQ(first.losses(3), second.losses(3));
  EXPECT_TRUE(first.state() == second.state());
}

TEST_P(TrainingCuda, memory_use_equals_the_measured_bytes) {
  Rig run(config(), kGpu);
  run.choose();
  run.step(1);
  run.evaluate(1);
  EXPECT_EQ(run.used().device, run.measured().device);
  EXPECT_EQ(run.used().pinned, run.measured().pinned);
}

TEST(TrainingCudaOnce, at_most_two_evaluations_may_be_pending) {
  Rig rig(tiny(Family::llama3, DType::fp32), kGpu);
  const auto first = rig.evaluate(1), second = rig.evaluate(2);
  ASSERT_NE(first.loss, second.loss);
  rig.enqueue_evaluation(1);
  rig.enqueue_evaluation(2);
  EXPECT_THROW(rig.enqueue_evaluation(3), Error);
  EXPECT_EQ(rig.training().evaluated().loss, first.loss);
  EXPECT_EQ(rig.training().evaluated().loss, second.loss);
  EXPECT_THROW(rig.training().evaluated(), Error);
}

TEST(TrainingCudaOnce, recorded_matmul_algorithms_give_the_same_bits) {
  const auto config = tiny(Family::gpt2, DType::bf16);
  Rig first(config, kGpu), second(config, kGpu);
  const auto choices = first.choose();
  EXPECT_EQ(second.choose(choices).algorithms, choices.algorithms);
  EXPECT_EQ(first.losses(3), second.losses(3));
  EXPECT_TRUE(first.state() == second.state());
}

// The host lacks memory for copies of the state. Tensors take several turns, one, or none.
TEST(TrainingCudaOnce, state_is_saved_and_loaded_in_turns_through_host_memory) {
  const testing::TemporaryDirectory directory;
  constexpr std::int64_t kTurn = HostStaging::kTurnBytes / 4;
  Stream stream(kGpu, "compute");
  Arena device(kGpu, Arena::Memory::device, 4 * HostStaging::kTurnBytes),
      host(kGpu, Arena::Memory::pinned_host, 10 * HostStaging::kTurnBytes);
  std::vector<StateSlice> slices;
  std::vector<Tensor> kept;
  std::int32_t number = 0;
  for (const std::int64_t n : {2 * kTurn + 333, kTurn, std::int64_t{5}, std::int64_t{0}}) {
    const Tensor on_host = host.allocate("t", DType::int32, {n});
    std::iota(on_host.as<std::int32_t>(), on_host.as<std::int32_t>() + n, number);
    number += static_cast<std::int32_t>(n);
    kept.push_back(on_host);
    slices.push_back(whole_slice(str("t", n), device.allocate("t", DType::int32, {n})));
    stream.copy(slices.back().local, on_host);
  }
  // Another rank has all elements of the last slice.
  slices.back().whole = {5};
  slices.back().split = unsplit({5});
  slices.back().owned = false;
  slices.push_back(whole_slice("t0", host.allocate("t", DType::int32, {5})));
  EXPECT_EQ(HostStaging::bytes(slices, kGpu, HostStaging::Copies::none), HostStaging::kTurnBytes);
  HostStaging state(slices, stream, HostStaging::Copies::none);
  EXPECT_TRUE(state.shares_state());
  EXPECT_EQ(state.slices().size(), 3u + 1 + 1 + 1 + 1);
  state.take();
  state.taken().synchronize();
  Checkpointer checkpointer(directory.path(), state.slices());
  checkpointer.save(1, Json(1));
  for (const auto& slice : slices)
    if (slice.local.device.kind == Device::Kind::cuda) {
      const Tensor zeros = host.allocate("zeros", DType::int32, slice.local.shape);
      std::fill_n(zeros.data, zeros.bytes(), std::byte{0});
      stream.copy(slice.local, zeros);
      stream.synchronize();
    }
  state.prepare_to_read();
  EXPECT_EQ(checkpointer.load_newest([](const Json&) {})->as_integer(), 1);
  state.send();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Tensor loaded = host.allocate("loaded", DType::int32, kept[i].shape);
    stream.copy(loaded, slices[i].local);
    stream.synchronize();
    EXPECT_TRUE(std::equal(kept[i].data, kept[i].data + kept[i].bytes(), loaded.data)) << i;
  }
  // A slice that this rank does not save has no copy, but is loaded.
  slices.resize(2);
  slices[1].owned = false;
  EXPECT_EQ(HostStaging::bytes(slices, kGpu, HostStaging::Copies::owned),
            round_up(slices[0].local.bytes(), 256) + HostStaging::kTurnBytes);
  std::swap(slices[0].owned, slices[1].owned);  // slice 0, the larger one, is loaded at once
  EXPECT_EQ(HostStaging::bytes(slices, kGpu, HostStaging::Copies::owned),
            HostStaging::kTurnBytes + round_up(slices[0].local.bytes(), 256));
}

TEST(TrainingCudaOnce, recompute_gives_the_same_bits) {
  for (const auto family : {Family::llama3, Family::gpt2}) {
    auto config = tiny(family, DType::bf16);
    Rig kept(config, kGpu);
    const auto losses = kept.losses(2);
    for (const auto recompute : {Recompute::cheap, Recompute::block}) {
      if (family == Family::gpt2 && recompute == Recompute::cheap) continue;  // docs/numerics.md
      config.recompute = recompute;
      Rig again(config, kGpu);
      EXPECT_EQ(again.losses(2), losses);
      EXPECT_TRUE(again.state() == kept.state());
    }
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

class Fp8Cuda : public ::testing::TestWithParam<std::tuple<Fp8Matmuls, Family>> {
 protected:
  static TrainingConfig config() {
    const auto [fp8, family] = GetParam();
    auto config = tiny(family, DType::bf16);
    config.fp8 = fp8;
    if (fp8 == Fp8Matmuls::tensor) return config;
    config.fp8_gradients = DType::fp8_e4m3;
    auto& m = config.model;
    m.layers = 1;
    m.width = m.mlp_width = 128;
    m.head_size = m.kv_heads == m.heads ? 64 : 128;
    config.sequence_length = 64;
    return config;
  }
};
using TypeAndFamily = std::tuple<Fp8Matmuls, Family>;
const auto kTypeAndFamily = [](const ::testing::TestParamInfo<TypeAndFamily>& p) {
  return str(std::get<Fp8Matmuls>(p.param) == Fp8Matmuls::tensor ? "tensor_" : "block_",
             name(std::get<Family>(p.param)));
};
INSTANTIATE_TEST_SUITE_P(all, Fp8Cuda,
                         ::testing::Values(TypeAndFamily{Fp8Matmuls::tensor, Family::qwen3},
                                           TypeAndFamily{Fp8Matmuls::block, Family::gpt2}),
                         kTypeAndFamily);
INSTANTIATE_TEST_SUITE_P(full_rest, Fp8Cuda,
                         ::testing::Values(TypeAndFamily{Fp8Matmuls::tensor, Family::gpt2},
                                           TypeAndFamily{Fp8Matmuls::tensor, Family::qwen2},
                                           TypeAndFamily{Fp8Matmuls::block, Family::llama3}),
                         kTypeAndFamily);

// A number on the other side of a midpoint between two fp8 values is off by an eighth.
TEST_P(Fp8Cuda, losses_are_those_of_the_cpu) {
  Rig cpu(config(), kCpu), gpu(config(), kGpu);
  for (int i = 1; i <= 2; ++i) {
    const auto expected = cpu.step(i), actual = gpu.step(i);
    EXPECT_NEAR(actual.loss, expected.loss, 2e-2 * expected.loss) << i;
    EXPECT_NEAR(actual.grad_norm, expected.grad_norm, 5e-2 * expected.grad_norm) << i;
    EXPECT_TRUE(actual.applied);
  }
  gpu.evaluate(1);
  EXPECT_EQ(gpu.used().device, gpu.measured().device);
}

TEST_P(Fp8Cuda, recompute_gives_the_same_bits) {
  auto config = Fp8Cuda::config();
  Rig kept(config, kGpu);
  const auto loss = kept.losses(1);
  config.recompute = Recompute::block;
  Rig again(config, kGpu);
  EXPECT_EQ(again.losses(1), loss);
  EXPECT_TRUE(again.state() == kept.state());
}

// The first step and the 20th are not replayed, the second is captured.
struct GraphsCuda : ::testing::TestWithParam<TrainingConfig> {
  static TrainingConfig config(bool cuda_graphs) {
    TrainingConfig config = GetParam();
    config.sample_tokens = 8;
    config.cuda_graphs = cuda_graphs;
    return config;
  }
  static TrainingConfig with_recompute() {
    TrainingConfig config = tiny(Family::qwen3, DType::fp32);
    config.recompute = Recompute::block;
    return config;
  }
  static TrainingConfig in_fp8() {
    TrainingConfig config = tiny(Family::qwen2, DType::bf16);
    config.fp8 = Fp8Matmuls::tensor;
    return config;
  }
  static TrainingConfig rounded() {
    TrainingConfig config = tiny(Family::llama3, DType::bf16);
    config.stochastic_rounding = true;
    config.moments = DType::bf16;
    return config;
  }
};
const auto kFamilyName = [](const ::testing::TestParamInfo<TrainingConfig>& p) {
  return name(p.param.model.family);
};
INSTANTIATE_TEST_SUITE_P(all, GraphsCuda, ::testing::Values(GraphsCuda::in_fp8()), kFamilyName);
INSTANTIATE_TEST_SUITE_P(full_rest, GraphsCuda,
                         ::testing::Values(tiny(Family::gpt2, DType::bf16), GraphsCuda::rounded(),
                                           GraphsCuda::with_recompute()),
                         kFamilyName);

TEST_P(GraphsCuda, on_and_off_have_the_same_bits) {
  Rig off(config(false), kGpu), on(config(true), kGpu);
  EXPECT_EQ(on.losses(16, 18), off.losses(16, 18));
  const auto between = [](Rig& rig) {
    const auto sum = rig.evaluate(1);
    const auto text = rig.training().sample(std::vector<std::int32_t>{1, 2}, 6, {.seed = 3});
    return std::pair{sum.loss, text};
  };
  EXPECT_EQ(between(on), between(off));
  EXPECT_EQ(on.losses(19, 22), off.losses(19, 22));
  EXPECT_TRUE(on.state() == off.state());
}

TEST_P(GraphsCuda, a_run_in_two_parts_has_the_same_bits) {
  Rig whole(config(true), kGpu), first(config(true), kGpu), second(config(true), kGpu);
  whole.losses(6);
  first.losses(3);
  second.load(first.state());
  second.losses(4, 6);
  EXPECT_TRUE(second.state() == whole.state());
}

// With four layers, the ring goes round twice.
struct OffloadCuda : ::testing::TestWithParam<TrainingConfig> {
  static TrainingConfig of(Family family, DType compute, Recompute recompute,
                           Fp8Matmuls fp8 = Fp8Matmuls::off) {
    TrainingConfig config = tiny(family, compute);
    config.model.layers = 4;
    config.recompute = recompute;
    config.fp8 = fp8;
    return config;
  }
  static TrainingConfig config(bool offload_activations) {
    TrainingConfig config = GetParam();
    config.offload_activations = offload_activations;
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(all, OffloadCuda,
                         ::testing::Values(OffloadCuda::of(Family::qwen3, DType::fp32,
                                                           Recompute::block)),
                         kFamilyName);
INSTANTIATE_TEST_SUITE_P(
    full_rest, OffloadCuda,
    ::testing::Values(OffloadCuda::of(Family::llama3, DType::bf16, Recompute::none),
                      OffloadCuda::of(Family::gpt2, DType::fp32, Recompute::cheap),
                      OffloadCuda::of(Family::qwen2, DType::bf16, Recompute::block,
                                      Fp8Matmuls::tensor)),
    kFamilyName);

TEST_P(OffloadCuda, has_the_same_bits_within_the_measured_memory) {
  Rig off(config(false), kGpu), on(config(true), kGpu);
  EXPECT_EQ(on.losses(1, 1), off.losses(1, 1));
  EXPECT_EQ(on.evaluate(1).loss, off.evaluate(1).loss);
  EXPECT_EQ(on.losses(2, 2), off.losses(2, 2));
  EXPECT_TRUE(on.state() == off.state());
  EXPECT_EQ(on.used().device, on.measured().device);
  EXPECT_EQ(on.used().pinned, on.measured().pinned);
  // The activations of two of four layers are on the host. A simulated GPU has gaps between
  // tensors.
  const auto pinned = on.measured().pinned - off.measured().pinned;
  const auto saved = off.measured().device - on.measured().device;
  EXPECT_GT(pinned, 0);
  EXPECT_GE(saved, pinned);
  EXPECT_LT(saved, 2 * pinned);
}

struct OffloadOptimizerCuda : ::testing::TestWithParam<TrainingConfig> {
  static TrainingConfig rounded() {
    auto config = tiny(Family::qwen2, DType::bf16);
    config.stochastic_rounding = true;
    config.moments = DType::bf16;
    return config;
  }
  static TrainingConfig in_fp8_with_activations() {
    auto config = tiny(Family::qwen3, DType::bf16);
    config.fp8 = Fp8Matmuls::tensor;
    config.model.layers = 3;
    config.offload_activations = true;
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(all, OffloadOptimizerCuda,
                         ::testing::Values(OffloadOptimizerCuda::rounded()), kFamilyName);
INSTANTIATE_TEST_SUITE_P(full_rest, OffloadOptimizerCuda,
                         ::testing::Values(tiny(Family::gpt2, DType::fp32),
                                           OffloadOptimizerCuda::in_fp8_with_activations()),
                         kFamilyName);

TEST_P(OffloadOptimizerCuda, has_the_same_bits_within_the_measured_memory) {
  TrainingConfig config = GetParam();
  Rig off(config, kGpu);
  config.offload_optimizer = true;
  Rig on(config, kGpu);
  EXPECT_EQ(on.losses(2), off.losses(2));
  EXPECT_EQ(on.evaluate(1).loss, off.evaluate(1).loss);
  EXPECT_TRUE(on.state() == off.state());
  EXPECT_EQ(on.used().device, on.measured().device);
  EXPECT_EQ(on.used().pinned, on.measured().pinned);
  EXPECT_GT(on.measured().pinned, off.measured().pinned);
}

// A resume reads its checkpoint before matmul algorithms are chosen.
TEST(TrainingCudaOnce, a_run_in_two_parts_with_an_offloaded_optimizer_has_the_same_bits) {
  auto config = tiny(Family::llama3, DType::bf16);
  config.offload_optimizer = true;
  Rig whole(config, kGpu), first(config, kGpu), second(config, kGpu);
  const auto choices = whole.choose();
  whole.losses(2);
  first.choose(choices);
  first.losses(1);
  second.load(first.state());
  second.training().choose_matmul_algorithms(choices);
  second.training().params().refresh_weights(second.stream());
  second.losses(2, 2);
  EXPECT_TRUE(second.state() == whole.state());
}

TEST(TrainingCudaOnce, a_ring_for_all_layers_copies_none) {
  auto config = tiny(Family::llama3, DType::fp32);
  for (const std::int64_t layers : {1, 2}) {
    config.model.layers = layers;
    config.offload_activations = false;
    Rig off(config, kGpu);
    config.offload_activations = true;
    Rig on(config, kGpu);
    EXPECT_EQ(on.losses(2), off.losses(2));
    EXPECT_EQ(on.measured().device, off.measured().device);
    EXPECT_EQ(on.measured().pinned, off.measured().pinned);
  }
}

TEST(TrainingCudaOnce, the_first_every_20th_and_each_held_step_are_timed) {
  for (const bool cuda_graphs : {false, true}) {
    auto config = tiny(Family::llama3, DType::bf16);
    config.cuda_graphs = cuda_graphs;
    Rig rig(config, kGpu);
    for (const std::int64_t step : {18, 19, 20, 21, 22, 23}) {
      const bool held = step == 22;  // a copy for a checkpoint holds it, and its time is measured
      if (held) rig.training().hold_update(Event());
      rig.step(step);
      const StepTime time = rig.training().trace().take();
      const bool is_timed = step == 18 || step == 20 || held;
      for (const auto component : {Component::products, Component::attention, Component::optimizer})
        EXPECT_EQ(time[component] > 0, is_timed) << step << name(component);
      for (const double seconds : time.seconds)
        EXPECT_EQ(std::isnan(seconds), !is_timed) << step;
    }
  }
}

#ifdef LOCKSTEP_SIMT
TEST(TrainingCudaOnce, components_are_ranges_for_profilers) {
  Rig rig(tiny(Family::llama3, DType::bf16), kGpu);
  simt::ranges() = {};
  rig.step(1);
  auto ranges = simt::ranges();
  EXPECT_EQ(ranges.open, 0);
  EXPECT_EQ(ranges.most_open, 2);
  EXPECT_EQ(ranges.begun.size(), 5U);
  EXPECT_EQ(ranges.begun["attention"], 8);  // two layers forward and backward, twice
  EXPECT_GT(ranges.begun["products"], 8);
  EXPECT_GT(ranges.begun["memory_bound"], 8);
  EXPECT_GT(ranges.begun["optimizer"], 1);  // with its operators inside
  EXPECT_GT(ranges.begun["communication_host"], 1);
}
#endif

TEST(TrainingCudaOnce, components_of_a_timed_step_sum_to_its_time) {
  Rig rig(tiny(Family::llama3, DType::bf16), kGpu);
  const Event before = rig.stream().record_timed();
  rig.step(20);
  const Event after = rig.stream().record_timed();
  after.synchronize();
  const StepTime time = rig.training().trace().take();
  const double whole = after.seconds_since(before);
  EXPECT_LE(time.total(), 1.0001 * whole);  // events return milliseconds in fp32
  EXPECT_GT(time.total(), 0.9 * whole);
  for (const double seconds : time.seconds)
    EXPECT_GE(seconds, 0);
}

// Recompute and CUDA graphs give the same bits, within the measured memory.
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
  const auto evaluated = gpu.evaluate(1);
  EXPECT_NEAR(evaluated.loss, cpu.evaluate(1).loss, 2e-2 * evaluated.loss);
  EXPECT_EQ(gpu.used().device, gpu.measured().device);
  config.recompute = Recompute::block;
  config.cuda_graphs = true;
  Rig again(config, kGpu, false);
  EXPECT_EQ(again.losses(6), actual);
}

TEST(TrainingCudaOnce, cudnn_rejects_a_batch_of_documents) {
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

}  // namespace lockstep::testing::training_test
