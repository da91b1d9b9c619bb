// A step takes the memory of arenas that a measuring arena counts, and none from the heap.
#include <gtest/gtest.h>

#include "tests/allocations.h"
#include "tests/model/tiny_model.h"

namespace lockstep::testing::memory_test {

struct Peaks {
  std::int64_t params = 0, activations = 0, scratch = 0;
  friend bool operator==(const Peaks&, const Peaks&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Peaks& p) {
    return out << p.params << " + " << p.activations << " + " << p.scratch << " bytes";
  }
};

struct Case {
  ModelConfig config;
  DType dtype = DType::fp32;
  Recompute recompute = Recompute::none;
  std::int64_t B = 2, T = 9;
};

// Runs a training step, an evaluation and a prediction with memory, or measures them.
Peaks peaks_of(const Case& c, bool measure) {
  const auto arena = [&] {
    return measure ? Arena::measure(Device{})
                   : Arena(Device{}, Arena::Memory::host, std::int64_t{64} << 20);
  };
  auto params_arena = arena(), activations = arena(), scratch = arena(), inputs = arena();
  Stream stream(Device{}, "test", measure ? Stream::Mode::measuring : Stream::Mode::immediate, 2);
  auto comms = make_comms();
  ParamStore params(comms, {.compute_dtype = c.dtype});
  Transformer transformer(params, c.config, {.recompute = c.recompute});
  params.allocate(params_arena, stream);
  params.initialize(stream, 1);
  const auto zeros = [&](DType dtype, const Shape& shape) {
    const auto t = inputs.allocate("input", dtype, shape);
    if (!measure) std::fill_n(t.data, t.bytes(), std::byte{0});
    return t;
  };
  const StepContext step{.compute = stream,
                         .scratch = scratch,
                         .params = params,
                         .comms = comms,
                         .positions = zeros(DType::int32, {c.B, c.T}),
                         .document_start = zeros(DType::int32, {c.B, c.T}),
                         .rope_table = {}};
  transformer.allocate(activations, step, 1);
  const auto ids = zeros(DType::int32, {c.B * c.T});
  const Targets targets{
      .ids = ids, .loss_sum = zeros(DType::fp32, {1}), .valid_tokens = zeros(DType::int32, {1})};
  params.begin_step(stream);
  transformer.forward(step, 0, ids, targets, /*last=*/true);
  transformer.backward(step, 0, ids, /*last=*/true);
  params.finish_backward(stream);
  transformer.evaluate(step, ids, targets);
  transformer.predict(step, zeros(DType::fp32, {c.B, stored_vocabulary(c.config)}), ids);
  return {params_arena.peak_bytes(), activations.peak_bytes(), scratch.peak_bytes()};
}

TEST(Memory, a_measuring_arena_counts_the_memory_of_a_run) {
  for (const auto family : kFamilies)
    for (const auto dtype : {DType::fp32, DType::bf16})
      for (const auto recompute : {Recompute::none, Recompute::cheap, Recompute::block}) {
        const Case c{.config = tiny(family), .dtype = dtype, .recompute = recompute};
        EXPECT_EQ(peaks_of(c, true), peaks_of(c, false)) << name(family) << " " << name(dtype);
      }
}

// Bytes per token that one more layer keeps.
std::int64_t layer_bytes_per_token(ModelConfig config, Recompute recompute) {
  const auto activations = [&](std::int64_t layers) {
    config.layers = layers;
    const Case c{.config = config, .dtype = DType::bf16, .recompute = recompute, .B = 2, .T = 1024};
    return peaks_of(c, true).activations;
  };
  return (activations(2) - activations(1)) / 2048;
}

TEST(Memory, a_layer_keeps_the_bytes_of_the_formulas) {
  const auto c = llama3_8b();
  const auto D = c.width, HK = c.attention_width(), GK = c.kv_heads * c.head_size, F = c.mlp_width;
  const auto all = 8 * D + 4 * HK + 4 * GK + 6 * F + 4 * c.heads;
  const auto stats = 8;  // rstd of two norms
  EXPECT_EQ(layer_bytes_per_token(c, Recompute::none), all + stats);
  EXPECT_EQ(layer_bytes_per_token(c, Recompute::cheap), all + stats - 4 * D - 2 * F);
  EXPECT_EQ(layer_bytes_per_token(c, Recompute::block), 2 * D);
  const auto gpt2 = gpt2_124m();
  EXPECT_EQ(layer_bytes_per_token(gpt2, Recompute::none), 32 * gpt2.width + 4 * gpt2.heads + 16);
}

TEST(Memory, logits_in_scratch_are_bounded) {
  auto config = tiny(Family::llama3);
  config.vocabulary = 131072;
  config.max_positions = 8192;
  const Case c{.config = config, .dtype = DType::fp32, .recompute = Recompute::block, .T = 8192};
  EXPECT_LT(peaks_of(c, true).scratch, std::int64_t{512} << 20);  // all at once: 8 GiB
}

TEST(Memory, a_step_allocates_nothing_from_the_heap) {
  for (const auto family : kFamilies)
    for (const auto dtype : {DType::fp32, DType::bf16}) {
      TinyModel model(tiny(family), {.dtype = dtype, .model = {.recompute = Recompute::cheap}});
      const auto step = model.step();
      const auto inputs = model.bench.integers(model.batch.inputs);
      const auto targets = model.fresh_targets(1.0f);
      const auto train = [&] {
        model.params.begin_step(model.bench.stream);
        model.transformer.forward(step, 0, inputs, targets, /*last=*/true);
        model.transformer.backward(step, 0, inputs, /*last=*/true);
        model.params.finish_backward(model.bench.stream);
        model.transformer.evaluate(step, inputs, targets);
      };
      train();
      const auto before = allocations();
      train();
      EXPECT_EQ(allocations() - before, 0) << name(family) << " " << name(dtype);
    }
}

}  // namespace lockstep::testing::memory_test
