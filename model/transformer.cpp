#include "model/transformer.h"

#include <algorithm>

#include "model/sequence.h"

namespace lockstep {
namespace {

std::vector<Block> make_blocks(ParamStore& params, const ModelConfig& config) {
  std::vector<Block> blocks;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    blocks.emplace_back(params, config, layer);
  return blocks;
}

const ModelConfig& validated(const ModelConfig& config, int tensor_ranks) {
  config.validate();
  require_divisible(config, tensor_ranks);
  return config;
}

std::vector<int> units_of(const Embedding& embedding, const std::vector<Block>& blocks,
                          const Head& head) {
  std::vector<int> units{embedding.unit()};
  for (const Block& block : blocks)
    units.push_back(block.unit());
  units.push_back(head.unit());
  return units;
}

// UnitWalk leads a pass along its FSDP units, and gathers each while the module before it computes.
template <class Iterator>
class UnitWalk {
 public:
  UnitWalk(ParamStore& params, const Iterator& begin, const Iterator& end)
      : params_(params), next_(begin), end_(end) {
    params_.prefetch(*next_);
  }

  // Moves the pass to `module`, which owns the next unit.
  template <class Module>
  const Module& to(const Module& module) {
    LOCKSTEP_CHECK(next_ != end_ && *next_ == module.unit(), "a pass comes to unit ", module.unit(),
                   " out of turn");
    if (++next_ != end_) params_.prefetch(*next_);
    return module;
  }

 private:
  ParamStore& params_;
  Iterator next_, end_;
};

}  // namespace

Transformer::Transformer(ParamStore& params, const ModelConfig& config, const Options& options)
    : config_(validated(config, params.comms().tensor->size())),
      options_(options),
      dtype_(params.compute_dtype()),
      tensor_ranks_(params.comms().tensor->size()),
      embedding_(params, config),
      blocks_(make_blocks(params, config)),
      head_(params, config, embedding_, options.head),
      units_(units_of(embedding_, blocks_, head_)) {}

void Transformer::allocate(Arena& activations, const StepContext& shape, int slots,
                           const Offload::To* offload) {
  LOCKSTEP_CHECK(slots_.empty(), "activations are allocated twice");
  const Arena::For use(activations, Purpose::activations);
  rope_table_ = allocate_rope_table(activations, shape.compute, shape.positions.shape[1]);
  for (int i = 0; i < slots; ++i)
    slots_.push_back(allocate_slot(activations, shape, offload));
}

Transformer::Slot Transformer::allocate_slot(Arena& arena, const StepContext& shape,
                                             const Offload::To* offload) const {
  const Shape stream{shape.stream_tokens(), config_.width};
  const auto L = blocks_.size(), ring = offload == nullptr ? L : std::min(L, Offload::kRing);
  Slot slot;
  for (std::size_t l = 0; l < L; ++l)
    slot.layers.push_back(l < ring ? blocks_[l].allocate_saved(arena, shape, options_.recompute)
                                   : slot.layers[l - ring]);
  for (std::size_t l = 0; l <= L; ++l)
    slot.x.push_back(l <= ring ? arena.allocate("x", dtype_, stream) : slot.x[l - ring - 1]);
  std::vector<std::vector<Tensor>> kept;
  for (std::size_t l = 0; l + ring < L; ++l) {
    kept.push_back(blocks_[l].tensors_of(slot.layers[l], shape));
    kept.back().push_back(slot.x[l]);
  }
  if (offload != nullptr) slot.offload = Offload(*offload, kept);
  slot.gradient.values = arena.allocate("gradient", dtype_, stream);
  if (shape.fp8 == Fp8Matmuls::tensor)
    slot.gradient.absmax = arena.allocate("gradient_absmax", DType::fp32, {1});
  return slot;
}

Tensor Transformer::allocate_rope_table(Arena& arena, Stream& stream,
                                        std::int64_t positions) const {
  if (positions > config_.max_positions)
    throw ConfigError(str("sequences of ", positions, " tokens, but the model has positions for ",
                          config_.max_positions, "; shorten them or raise model.max_positions"));
  if (config_.learned_positions) return {};
  const auto table = arena.allocate("rope_table", DType::fp32, {positions, config_.head_size});
  rope_table(stream, table, config_.rope_theta, config_.rope_scaling);
  return table;
}

Transformer::Slot& Transformer::slot_of(int slot) {
  LOCKSTEP_CHECK(0 <= slot && slot < static_cast<int>(slots_.size()), "slot ", slot, " of ",
                 slots_.size(), "; allocate() makes them");
  return slots_[static_cast<std::size_t>(slot)];
}

StepContext Transformer::with_table(const StepContext& step, ConstTensor rope_table) const {
  StepContext with = step;
  with.rope_table = rope_table;
  return with;
}

void Transformer::forward(const StepContext& outer, int slot, ConstTensor inputs,
                          const Targets& targets, bool last) {
  const auto step = with_table(outer, rope_table_);
  auto& s = slot_of(slot);
  UnitWalk walk(step.params, units_.begin(), units_.end());
  walk.to(embedding_).forward(step, s.x[0], inputs);
  for (std::size_t l = 0; l < blocks_.size(); ++l) {
    const Block& block = walk.to(blocks_[l]);
    s.offload.before_forward(step.compute, l);
    block.forward(step, s.x[l + 1], s.x[l], s.layers[l]);
    s.offload.after_forward(step.compute, l);
  }
  walk.to(head_).loss_and_gradient(step, s.gradient, s.x.back(), targets);
  step.params.reduce(head_.unit(), step.compute, last);
}

void Transformer::backward(const StepContext& outer, int slot, ConstTensor inputs, bool last) {
  const auto step = with_table(outer, rope_table_);
  auto& s = slot_of(slot);
  UnitWalk walk(step.params, units_.rbegin() + 1, units_.rend() - 1);  // the blocks'
  for (auto l = blocks_.size(); l-- > 0;) {
    const Block& block = walk.to(blocks_[l]);
    s.offload.before_backward(step.compute, l);
    block.backward(step, s.gradient, s.x[l], s.layers[l]);
    s.offload.after_backward(step.compute, l);
    step.params.reduce(block.unit(), step.compute, last);
  }
  // The next forward needs the embedding first. Its all-gather must not wait for the reduction
  // below.
  if (!last) step.params.prefetch(embedding_.unit());
  embedding_.backward(step, s.gradient.values, inputs);
  step.params.reduce(embedding_.unit(), step.compute, last);
}

void Transformer::evaluate(const StepContext& outer, ConstTensor inputs, const Targets& targets) {
  const auto step = with_table(outer, rope_table_);
  const Arena::Scope scope(step.scratch);
  head_.loss(step, run(step, inputs, nullptr), targets);
}

// Returns the residual stream after the last block, in scratch: one tensor serves all blocks.
Tensor Transformer::run(const StepContext& step, ConstTensor inputs, const Cache* cache) {
  const auto x = step.scratch.allocate("x", dtype_, {step.stream_tokens(), config_.width});
  UnitWalk walk(step.params, units_.begin(), units_.end());
  walk.to(embedding_).forward(step, x, inputs);
  for (std::size_t l = 0; l < blocks_.size(); ++l)
    walk.to(blocks_[l]).forward(step, x, x, {}, cache == nullptr ? nullptr : &cache->layers[l]);
  return x;
}

Transformer::Cache Transformer::allocate_cache(Arena& arena, Stream& stream, std::int64_t sequences,
                                               std::int64_t capacity) const {
  Cache cache;
  cache.rope_table = allocate_rope_table(arena, stream, capacity);
  const Shape shape{sequences, capacity, config_.kv_heads / tensor_ranks_, config_.head_size};
  for (std::size_t l = 0; l < blocks_.size(); ++l)
    cache.layers.push_back({.keys = arena.allocate("keys", dtype_, shape),
                            .values = arena.allocate("values", dtype_, shape)});
  return cache;
}

// The context for a cache; without a cache, for a whole micro-batch.
StepContext Transformer::with_cache(const StepContext& step, const Cache* cache) const {
  auto with = with_table(step, cache == nullptr ? rope_table_ : cache->rope_table);
  with.fp8 = Fp8Matmuls::off;  // because the number of tokens is arbitrary
  return with;
}

void Transformer::prefill(const StepContext& outer, ConstTensor inputs, const Cache& cache) {
  const auto step = with_cache(outer, &cache);
  const Arena::Scope scope(step.scratch);
  run(step, inputs, &cache);
}

void Transformer::score(const StepContext& outer, Tensor losses, ConstTensor inputs,
                        ConstTensor targets, const Cache& cache) {
  const auto step = with_cache(outer, &cache);
  const Arena::Scope scope(step.scratch);
  head_.losses(step, losses, run(step, inputs, &cache), targets);
}

void Transformer::predict(const StepContext& outer, Tensor logits, ConstTensor inputs,
                          const Cache* cache) {
  const auto step = with_cache(outer, cache);
  const Arena::Scope scope(step.scratch);
  const auto B = step.positions.shape[0], n = step.positions.shape[1], m = logits.shape[0] / B;
  LOCKSTEP_CHECK(logits.shape[0] == B * m && 1 <= m && m <= n, "logits of ", logits.shape[0],
                 " tokens of ", B, " sequences of ", n);
  const auto x = SequenceGather(step, run(step, inputs, cache)).wait();
  if (m == n) return head_.logits(step, logits, x);
  for (std::int64_t b = 0; b < B; ++b)
    head_.logits(step, logits.rows(b * m, m), x.rows(b * n + n - m, m));
}

}  // namespace lockstep
