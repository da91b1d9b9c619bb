// Tiny models of each family in odd shapes, on two threads, with a random batch.
#pragma once

#include <memory>
#include <optional>

#include "model/transformer.h"
#include "tests/model/published.h"
#include "tests/model/reference_model.h"

namespace lockstep::testing {

inline const Family kFamilies[] = {Family::gpt2, Family::llama3, Family::qwen2, Family::qwen3,
                                   Family::smollm3};

// No size is a multiple of a vector. Query heads share key/value heads. Head size times heads is
// not the width if the family allows it.
inline ModelConfig tiny(Family family) {
  const bool gpt2 = family == Family::gpt2;
  auto c = sized(family, {.layers = 2,
                          .width = 30,
                          .heads = gpt2 ? 3 : 6,
                          .kv_heads = gpt2 ? 3 : 2,
                          .head_size = 10,
                          .mlp_width = 44,
                          .vocabulary = 37,
                          .max_positions = 40});
  if (family == Family::smollm3) c.no_rope_every = 2;
  if (family == Family::llama3)
    c.rope_scaling =
        RopeScaling{.factor = 8, .low_factor = 1, .high_factor = 4, .original_context = 64};
  if (family == Family::qwen3) c.tied_head = true;
  return c;
}

struct TinyOptions {
  DType dtype = DType::fp32;
  Transformer::Options model = {};
  std::int64_t sequences = 2, length = 9;
};

class TinyModel {
 public:
  explicit TinyModel(const ModelConfig& config, const TinyOptions& options = {})
      : params(comms, {.compute_dtype = options.dtype}),
        transformer(params, config, options.model),
        B(options.sequences),
        T(options.length) {
    params.allocate(bench.arena, bench.stream);
    randomize();
    batch.sequences = static_cast<std::size_t>(B);
    batch.length = static_cast<std::size_t>(T);
    for (std::int64_t n = 0; n < B * T; ++n) {
      batch.inputs.push_back(draw(n, 1, config.vocabulary));
      batch.targets.push_back(draw(n, 2, config.vocabulary));
      batch.document_start.push_back(0);
    }
    transformer.allocate(bench.arena, step(), 1);
  }

  StepContext step() {
    positions_ = bench.integers(std::vector<std::int32_t>(static_cast<std::size_t>(B * T)), {B, T});
    for (std::int64_t n = 0; n < B * T; ++n)
      positions_.as<std::int32_t>()[n] =
          static_cast<int>(n % T) - batch.document_start[static_cast<std::size_t>(n)];
    return {.compute = bench.stream,
            .scratch = scratch,
            .params = params,
            .comms = comms,
            .positions = positions_,
            .document_start = bench.integers(batch.document_start, {B, T}),
            .rope_table = {}};
  }

  // Returns the loss sum of the batch; its gradients are then in `params`.
  double forward_backward(float gradient_scale = 1.0f) {
    const auto s = step();
    const auto inputs = bench.integers(batch.inputs);
    targets = fresh_targets(gradient_scale);
    params.begin_step(bench.stream);
    transformer.forward(s, 0, inputs, targets, /*last=*/true);
    transformer.backward(s, 0, inputs, /*last=*/true);
    params.finish_backward(bench.stream);
    return get(targets.loss_sum, 0);
  }
  double evaluate() {
    const auto evaluated = fresh_targets(1.0f);
    transformer.evaluate(step(), bench.integers(batch.inputs), evaluated);
    return get(evaluated.loss_sum, 0);
  }
  // [B T, Vp], Vp >= V
  Tensor logits() {
    const auto all = bench.poisoned({B * T, stored_vocabulary(transformer.config())}, DType::fp32);
    transformer.predict(step(), all, bench.integers(batch.inputs));
    return all;
  }

  Targets fresh_targets(float gradient_scale) {
    return {.ids = bench.integers(batch.targets),
            .loss_sum = bench.random({1}, DType::fp32, 0.0f),
            .valid_tokens = bench.integers({0}),
            .gradient_scale = gradient_scale};
  }

  // Calls visit(name, values) for each parameter's own elements in one of the shard's buffers.
  template <class Visit>
  void for_each(Tensor ParamShard::*buffer, Visit&& visit) {
    for (auto& shard : params.shards())
      for (const auto& segment : shard.segments)
        visit(params.spec(segment.id), (shard.*buffer).rows(segment.shard_begin, segment.count));
  }
  std::map<std::string, Doubles> values(Tensor ParamShard::*buffer) {
    std::map<std::string, Doubles> all;
    for_each(buffer, [&](const ParamSpec& spec, Tensor t) { all[spec.name] = doubles(t); });
    return all;
  }
  std::map<std::string, Doubles> gradients() { return values(&ParamShard::grad); }

  ReferenceModel reference() {
    ReferenceModel r(transformer.config());
    r.parameters = values(&ParamShard::weight);
    return r;
  }

  Bench bench;
  Arena scratch{Device{}, Arena::Memory::host, std::int64_t{64} << 20};
  Comms comms = make_comms();
  ParamStore params;
  Transformer transformer;
  std::int64_t B, T;
  ReferenceBatch batch;
  Targets targets;  // of the last forward_backward

 private:
  static int draw(std::int64_t index, std::uint64_t purpose, std::int64_t below) {
    const auto word = philox(99, purpose, static_cast<std::uint64_t>(index))[0];
    return static_cast<int>(word % static_cast<std::uint64_t>(below));
  }
  // Weights are large enough that every nonlinearity matters; norms are around 1.
  void randomize() {
    for_each(&ParamShard::weight, [&](const ParamSpec& spec, Tensor t) {
      const double centre = spec.init == Init::ones ? 1 : 0;
      for (std::int64_t i = 0; i < t.elements(); ++i) {
        const auto word = philox(7, purpose_of(spec.name), static_cast<std::uint64_t>(i))[0];
        Bench::set(t, i, centre + 0.3 * (2 * static_cast<double>(uniform_open(word)) - 1));
      }
    });
  }

  Tensor positions_;
};

}  // namespace lockstep::testing
