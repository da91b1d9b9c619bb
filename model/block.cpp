#include "model/block.h"

#include "kernels/attention_cudnn.h"
#include "kernels/qk_norm.h"
#include "kernels/reduce.h"
#include "kernels/rope.h"
#include "model/families.h"

namespace lockstep {
namespace {

Linear::Spec qkv_spec(const ModelConfig& c, const LayerNames& names) {
  const auto q_width = c.attention_width(), kv_width = c.kv_heads * c.head_size;
  return {.parts = {{names.q, q_width}, {names.k, kv_width}, {names.v, kv_width}},
          .inputs = c.width,
          .split = Linear::Split::outputs,
          .bias = c.qkv_bias,
          .init_std = c.init_std};
}

Linear::Spec out_spec(const ModelConfig& c, const LayerNames& names) {
  return {.parts = {{names.out, c.width}},
          .inputs = c.attention_width(),
          .split = Linear::Split::inputs,
          .bias = c.out_bias,
          .init_std = c.residual_init_std()};
}

// Indices into Block::Saved::absmax.
enum class Of : std::uint8_t { norm1, attention, norm2, hidden };
Tensor absmax_of(const Block::Saved& a, Of of) {
  return a.absmax ? a.absmax.rows(static_cast<std::int64_t>(of), 1) : Tensor{};
}

ParamId declare_head_norm(ParamStore& params, int unit, const std::string& name,
                          const ModelConfig& c) {
  return params.declare(
      unit,
      {.name = name + ".weight", .shape = {c.head_size}, .role = Role::vector, .init = Init::ones});
}

}  // namespace

Block::Block(ParamStore& params, const ModelConfig& config, std::int64_t layer)
    : Block(params, config, layer, layer_names(config.family, layer)) {}

Block::Block(ParamStore& params, const ModelConfig& config, std::int64_t layer,
             const LayerNames& names)
    : config_(config),
      has_rope_(config.has_rope(layer)),
      unit_(params.add_unit(str("layer ", layer), Keep::layers)),
      norm1_(params, unit_, names.norm1, config),
      norm2_(params, unit_, names.norm2, config),
      qkv_(params, unit_, qkv_spec(config, names)),
      out_(params, unit_, out_spec(config, names)),
      mlp_(params, unit_, config, names) {
  if (!config.qk_norm) return;
  q_norm_ = declare_head_norm(params, unit_, names.q_norm, config);
  k_norm_ = declare_head_norm(params, unit_, names.k_norm, config);
}

// Calls visit(tensor, name, type, shape, most) for each tensor in `a`, which is kept up to
// recompute `most`.
template <class Visit>
void Block::for_each_activation(const StepContext& step, Saved& a, Visit&& visit) const {
  const auto t = step.comms.tensor->size();
  const auto N = step.tokens(), n = step.stream_tokens(), D = config_.width, K = config_.head_size;
  const auto H = config_.heads / t, G = config_.kv_heads / t;
  const auto B = step.positions.shape[0], T = step.positions.shape[1];
  const auto type = step.params.compute_dtype();
  const auto fp32 = DType::fp32;
  const auto none = Recompute::none, cheap = Recompute::cheap;

  visit(a.norm1, "norm1", type, Shape{n, D}, none);
  visit(a.stats1, "stats1", fp32, norm1_.stats_shape(n), cheap);
  if (q_norm_) {
    visit(a.raw_qkv, "raw_qkv", type, Shape{N, H + 2 * G, K}, cheap);
    visit(a.qk_rstd, "qk_rstd", fp32, Shape{N, H + G}, cheap);
  }
  visit(a.qkv, "qkv", type, Shape{N, H + 2 * G, K}, q_norm_ ? none : cheap);
  visit(a.attention, "attention", type, Shape{N, H, K}, cheap);
  visit(a.lse, "lse", fp32, Shape{B, H, T}, cheap);
  visit(a.middle, "middle", type, Shape{n, D}, cheap);
  visit(a.norm2, "norm2", type, Shape{n, D}, none);
  visit(a.stats2, "stats2", fp32, norm2_.stats_shape(n), cheap);
  mlp_.for_each_activation(step, a.mlp, visit);
  if (step.fp8 == Fp8Matmuls::tensor) visit(a.absmax, "absmax", fp32, Shape{4}, Recompute::block);
}

Block::Saved Block::allocate_saved(Arena& arena, const StepContext& step,
                                   Recompute recompute) const {
  Saved saved;
  for_each_activation(
      step, saved,
      [&](Tensor& tensor, const char* name, DType type, const Shape& shape, Recompute most) {
        if (recompute <= most) tensor = arena.allocate(name, type, shape);
      });
  return saved;
}

std::vector<Tensor> Block::tensors_of(Saved saved, const StepContext& step) const {
  std::vector<Tensor> tensors;
  for_each_activation(step, saved,
                      [&](const Tensor& tensor, const char*, DType, const Shape&, Recompute) {
                        if (tensor) tensors.push_back(tensor);
                      });
  return tensors;
}

// Tensors that were not kept are allocated in scratch.
Block::Saved Block::complete(const Saved& saved, const StepContext& step) const {
  Saved a = saved;
  const Arena::For use(step.scratch, Purpose::activations);
  for_each_activation(
      step, a, [&](Tensor& tensor, const char* name, DType type, const Shape& shape, Recompute) {
        if (!tensor) tensor = step.scratch.allocate(name, type, shape);
      });
  return a;
}

void Block::forward(const StepContext& step, Tensor y, ConstTensor x, const Saved& saved,
                    const KvCache* cache) const {
  const Arena::Scope scope(step.scratch);
  const Saved a = complete(saved, step);
  const auto w = step.params.use(unit_, step.compute);
  compute(step, w, a, x, cache);
  mlp_.project(step, w, y, a.mlp, a.middle, absmax_of(a, Of::hidden));
}

// Computes everything before the mlp's last matrix.
void Block::compute(const StepContext& step, const ParamStore::Use& w, const Saved& a,
                    ConstTensor x, const KvCache* cache) const {
  const auto most = [&](Of of) { return absmax_of(a, of); };
  norm1_.forward(step, w, a.norm1, a.stats1, x, most(Of::norm1));
  qkv_.forward(step, w, q_norm_ ? a.raw_qkv : a.qkv, {a.norm1, most(Of::norm1)});
  rotate(step, w, a);
  attend(step, a, cache);
  out_.forward(step, w, a.middle, {a.attention, most(Of::attention)});

  norm2_.add_forward(step, w, a.norm2, a.stats2, a.middle, x, most(Of::norm2));
  mlp_.compute_hidden(step, w, a.mlp, {a.norm2, most(Of::norm2)}, most(Of::hidden));
}

// Computes only norms and activation functions, from the tensors that Recompute::cheap keeps.
void Block::compute_cheap(const StepContext& step, const ParamStore::Use& w, const Saved& a,
                          ConstTensor x) const {
  norm1_.forward(step, w, a.norm1, a.stats1, x);  // their absmax was kept
  norm2_.forward(step, w, a.norm2, a.stats2, a.middle);
  if (q_norm_) rotate(step, w, a);
  mlp_.recompute_hidden(step, a.mlp);
}

// Applies qk-norm and RoPE if the layer has them; if it has both, in one pass.
void Block::rotate(const StepContext& step, const ParamStore::Use& w, const Saved& a) const {
  const auto heads = static_cast<int>(a.attention.shape[1]);
  const auto kv_heads = static_cast<int>(a.qkv.shape[1] - heads) / 2;
  const auto positions = step.positions.view({step.tokens()});
  if (q_norm_)
    qk_norm_forward(step.compute, {.out = a.qkv,
                                   .rstd = a.qk_rstd,
                                   .qkv = a.raw_qkv,
                                   .q_weight = w[*q_norm_],
                                   .k_weight = w[*k_norm_],
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .epsilon = config_.norm_epsilon,
                                   .table = has_rope_ ? step.rope_table : ConstTensor{},
                                   .positions = has_rope_ ? positions : ConstTensor{}});
  else if (has_rope_)
    rope_forward(step.compute, a.qkv, step.rope_table, positions, heads, kv_heads);
}

void Block::rotate_backward(const StepContext& step, const ParamStore::Use& w, Tensor dqkv,
                            const Saved& a, Tensor most) const {
  const auto heads = static_cast<int>(a.attention.shape[1]);
  const auto kv_heads = static_cast<int>(a.qkv.shape[1] - heads) / 2;
  const auto positions = step.positions.view({step.tokens()});
  if (q_norm_)
    qk_norm_backward(step.compute, step.scratch,
                     {.dqkv = dqkv,
                      .dq_weight = step.params.grad(*q_norm_),
                      .dk_weight = step.params.grad(*k_norm_),
                      .qkv = a.raw_qkv,
                      .rstd = a.qk_rstd,
                      .q_weight = w[*q_norm_],
                      .k_weight = w[*k_norm_],
                      .heads = heads,
                      .kv_heads = kv_heads,
                      .table = has_rope_ ? step.rope_table : ConstTensor{},
                      .positions = has_rope_ ? positions : ConstTensor{},
                      .absmax = most});
  else if (has_rope_)
    rope_backward(step.compute, dqkv, step.rope_table, positions, heads, kv_heads, most);
  else if (most)
    absmax(step.compute, most, dqkv);
}

void Block::attend(const StepContext& step, const Saved& a, const KvCache* cache) const {
  const auto most = absmax_of(a, Of::attention);
  if (cache != nullptr)
    attention_cached(step.compute, step.scratch, a.attention, *cache, a.qkv, step.positions);
  else if (step.cudnn_attention)
    cudnn_attention_forward(step.compute, step.scratch, a.attention, a.lse, a.qkv);
  else
    return attention_forward(step.compute, step.scratch, a.attention, a.lse, a.qkv,
                             step.document_start, most);
  if (most) absmax(step.compute, most, a.attention);
}

void Block::backward(const StepContext& step, const Gradient& gradient, ConstTensor x,
                     const Saved& saved) const {
  const Arena::Scope scope(step.scratch);
  const Saved a = complete(saved, step);
  const auto w = step.params.use(unit_, step.compute);
  step.params.begin_gradients(unit_, step.compute);
  if (!saved.attention) compute(step, w, a, x, nullptr);
  mlp_branch_backward(step, w, gradient, a, [&] {
    if (saved.attention && !saved.mlp.hidden) compute_cheap(step, w, a, x);
  });
  attention_branch_backward(step, w, gradient, a, x);
}

void Block::mlp_branch_backward(const StepContext& step, const ParamStore::Use& w,
                                const Gradient& gradient, const Saved& a,
                                FunctionRef<void()> recompute) const {
  const Arena::Scope scope(step.scratch);
  const LinearInput norm2{a.norm2, absmax_of(a, Of::norm2)};
  const auto dnorm =
      mlp_.backward(step, w, gradient, a.mlp, norm2, absmax_of(a, Of::hidden), recompute);
  norm2_.backward(step, w, gradient, dnorm, a.middle, a.stats2);
}

void Block::attention_branch_backward(const StepContext& step, const ParamStore::Use& w,
                                      const Gradient& gradient, const Saved& a,
                                      ConstTensor x) const {
  const Arena::Scope scope(step.scratch);
  const auto dattention = step.scratch.allocate("dattention", a.attention.dtype, a.attention.shape);
  const auto dqkv = step.scratch.allocate("dqkv", a.qkv.dtype, a.qkv.shape);
  const auto dnorm = step.scratch.allocate("dnorm1", a.norm1.dtype, a.norm1.shape);
  const auto most = a.absmax ? step.scratch.allocate("dqkv_absmax", DType::fp32, {1}) : Tensor{};
  out_.backward(step, w, dattention, gradient, {a.attention, absmax_of(a, Of::attention)});
  if (step.cudnn_attention)
    cudnn_attention_backward(step.compute, step.scratch, dqkv, dattention, a.attention, a.lse,
                             a.qkv);
  else
    attention_backward(step.compute, step.scratch, dqkv, dattention, a.attention, a.lse, a.qkv,
                       step.document_start);
  rotate_backward(step, w, dqkv, a, most);
  qkv_.backward(step, w, dnorm, {dqkv, most}, {a.norm1, absmax_of(a, Of::norm1)});
  norm1_.backward(step, w, gradient, dnorm, x, a.stats1);
}

}  // namespace lockstep
