#include "tests/bench/published_run.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep {
namespace {

constexpr double kSendOverlap = 0.7;
constexpr double kReadSeconds = 4.3e-3;  // inferred (docs/planning.md, "Shared files")

struct Product {
  double M, N, K, times;
};
using Products = std::vector<Product>;

// Elements that the products of a layer read and write.
double elements(const Products& products, bool with_output) {
  double sum = 0;
  for (const auto& p : products)
    sum += (p.M * p.K + (with_output ? p.M * p.N : 0)) * p.times;
  return sum;
}

// Of one layer and one micro-batch on one rank.
struct LayerSeconds {
  double products = 0, attention = 0, memory = 0, tensor = 0, context = 0;
  double total() const { return products + attention + memory + tensor + context; }
};

class Pricer {
 public:
  Pricer(const PublishedModel& model, const PublishedLayout& layout, const Hardware& hardware,
         const PublishedEngine& engine, const PublishedConstants& constants)
      : model_(model),
        layout_(layout),
        hardware_(hardware_with(hardware, constants)),
        engine_(engine),
        constants_(constants),
        time_model_(hardware_, efficiency(engine, constants)),
        tokens_(static_cast<double>(layout.micro_batch) * real(model.sequence) / layout.context) {
    set_products();
    forward_ = forward();
    backward_ = backward();
    set_stages();
    parameters_ = parameters();
  }

  RunPrice price() const;

 private:
  static double real(std::int64_t n) { return static_cast<double>(n); }

  void set_products();
  LayerSeconds forward() const;
  LayerSeconds backward() const;
  void set_stages();
  double parameters() const;

  double seconds(const Products& products, Arithmetic arithmetic) const;
  Products in_pieces(Products products) const;
  // For the optimizer and casts: without the engine's factor for memory-bound operators.
  double raw_bytes_seconds(double bytes) const {
    return time_model_.memory_seconds(bytes) / time_model_.engine().memory_bound;
  }
  double attention_flops() const;
  double attention_seconds(bool is_backward) const;
  double fused_bytes(bool is_backward) const;
  double cast_seconds() const;
  double tensor_seconds(double calls, double beside, double window) const;
  double context_turn() const;
  double context_seconds(double turns, double attention) const;
  double send_seconds() const;

  struct DataSeconds {
    double micro_batch = 0, step = 0;
  };
  DataSeconds data_ranks(double compute) const;
  DataSeconds fully_sharded(double compute, double slow, int inside) const;
  double reduced_once(double compute, double slow, int inside) const;
  double beside(double alone, double window, double slow) const;
  double optimizer_seconds() const;
  double cast_weights_seconds() const;
  double accumulate_seconds() const;
  double host_seconds() const;

  const PublishedModel& model_;
  const PublishedLayout& layout_;
  Hardware hardware_;
  const PublishedEngine& engine_;
  const PublishedConstants& constants_;
  TimeModel time_model_;
  double tokens_;  // of a rank's micro-batch
  Products products_, again_;
  LayerSeconds forward_, backward_;
  double parameters_ = 0;  // of the fullest rank, before data ranks divide them
  // Of a micro-batch: head, the mean and the slowest stage, and its forward.
  double head_ = 0, mean_ = 0, slowest_ = 0, slowest_forward_ = 0;
};

Arithmetic arithmetic_of(PublishedPrecision precision) {
  if (precision == PublishedPrecision::bf16) return Arithmetic::bf16;
  return precision == PublishedPrecision::fp8_rowwise ? Arithmetic::fp8_rowwise : Arithmetic::fp8;
}

// ------------------------------------------------------------------------------------- a layer

void Pricer::set_products() {
  const double n = tokens_, t = layout_.tensor, D = real(model_.width), F = real(model_.mlp);
  const double up = model_.is_gated ? 2 : 1;
  products_ = {{n, model_.qkv_columns() / t, D, 1},
               {n, D, real(model_.heads * model_.head_size) / t, 1}};
  products_.push_back({n, up * F / t, D, 1});
  products_.push_back({n, D, F / t, 1});
  switch (layout_.recompute) {
    case PublishedRecompute::none:
    case PublishedRecompute::attention: break;
    case PublishedRecompute::save_qkv: again_ = {products_[1], products_[2]}; break;
    case PublishedRecompute::full: again_ = products_; break;
    case PublishedRecompute::half:
      again_ = products_;
      for (auto& p : again_)
        p.times /= 2;
      break;
  }
}

double Pricer::seconds(const Products& products, Arithmetic arithmetic) const {
  double sum = 0;
  for (const auto& p : products)
    sum += p.times * time_model_.matmul_seconds(matmul_call(p.M, p.N, p.K, arithmetic));
  return sum;
}

double Pricer::attention_flops() const {  // forward, below the diagonal
  const double s = real(model_.sequence);
  return 2.0 * layout_.micro_batch * s * s * real(model_.heads * model_.head_size) /
         (layout_.tensor * layout_.context);
}

double Pricer::attention_seconds(bool is_backward) const {
  const double flops = attention_flops(), s = real(model_.sequence), c = layout_.context;
  if (engine_.attention ==
      PublishedAttention::unfused) {  // the full square, and passes over the scores
    const double scores = layout_.micro_batch * s * s * real(model_.heads) / (layout_.tensor * c);
    return (is_backward ? 4 : 2) * flops / (0.7 * time_model_.matmul_rate(Arithmetic::bf16)) +
           time_model_.memory_seconds((is_backward ? 17 : 13) * scores);
  }
  const double imbalance = engine_.balances_context ? 0 : constants_.context_imbalance;
  const double uneven = 1 + imbalance * (c - 1) / c;
  return uneven * time_model_.attention_seconds({
                      .flops = (is_backward ? 2.5 : 1) * flops,
                      .sequence = c > 1 ? s / (2 * c) : s,  // of one step of the ring
                      .head_size = real(model_.head_size),
                      .is_backward = is_backward,
                  });
}

// In bf16: norms and residual additions, positions, activation.
double Pricer::fused_bytes(bool is_backward) const {
  const double t = layout_.tensor, D = real(model_.width);
  const bool is_rotary = model_.is_gated || !model_.has_learned_positions;
  const double heads = is_rotary ? real((model_.heads + model_.kv_heads) * model_.head_size) : 0;
  // as PyTorch operators a norm moves 36 bytes of an element in forward, and positions 40
  double norms = is_backward ? 18 : 8, rotary = 4;
  if (!engine_.fuses_norms) {
    norms = is_backward ? 144 : 72;
    rotary = 40;
  }
  const double activation = is_backward ? (model_.is_gated ? 10 : 6) : (model_.is_gated ? 6 : 4);
  const double divided = engine_.is_sequence_parallel ? t : 1;
  return tokens_ *
         ((norms + 12) * D / divided + (rotary * heads + activation * real(model_.mlp)) / t);
}

// Inputs and gradients of matmuls. A cast reads two bytes per element and writes one to two places.
double Pricer::cast_seconds() const {
  if (layout_.precision == PublishedPrecision::bf16) return 0;
  const double bytes = 4 * elements(products_, true) + 4 * elements(again_, false);
  return raw_bytes_seconds(bytes) * (layout_.precision == PublishedPrecision::fp8
                                         ? constants_.cast_delayed
                                         : constants_.cast_current);
}

// Exposed time of `calls` all-gathers and reduce-scatters of a layer. `beside` of them overlap
// matmuls that take `window` in all.
double Pricer::tensor_seconds(double calls, double beside, double window) const {
  const int t = layout_.tensor;
  if (t == 1) return 0;
  const double one =
      time_model_.gather_seconds(2 * tokens_ * real(model_.width), t, hardware_.domain_ranks);
  return calls * one - beside * constants_.tensor_overlap * std::min(one, window / calls);
}

// Keys and values go round the ranks of a context once.
double Pricer::context_turn() const {
  const int c = layout_.context, t = layout_.tensor;
  const double rate = c * t <= hardware_.domain_ranks
                          ? hardware_.nvlink_bytes_per_second
                          : hardware_.nic_bytes_per_second * time_model_.engine().network;
  const double bytes = 4 * tokens_ * real(model_.kv_heads * model_.head_size) / t;
  return (c - 1) * (bytes / rate + 20e-6);
}

// Exposed time of ring turns that overlap attention.
double Pricer::context_seconds(double turns, double attention) const {
  if (!engine_.overlaps_context) return turns;
  return std::max(0.0, turns - 0.8 * attention) + 0.15 * turns;
}

// Matmuls whose rows arrive in pieces, one from each tensor-parallel rank. A piece has fewer tiles,
// and so more idle multiprocessors.
Products Pricer::in_pieces(Products products) const {
  if (!layout_.has_async_tensor) return products;
  for (auto& p : products) {
    p.M /= layout_.tensor;
    p.times *= layout_.tensor;
  }
  return products;
}

LayerSeconds Pricer::forward() const {
  const double attention = attention_seconds(false), turn = context_turn();
  const double products = seconds(in_pieces(products_), arithmetic_of(layout_.precision));
  const double beside = layout_.has_async_tensor ? 4 : engine_.beside_forward;
  return {.products = products,
          .attention = attention,
          .memory = time_model_.memory_seconds(fused_bytes(false)) + 0.4 * cast_seconds(),
          .tensor = tensor_seconds(engine_.tensor_forward, beside, products),
          .context = context_seconds(turn, attention)};
}

LayerSeconds Pricer::backward() const {
  Products products = in_pieces(again_);
  for (const auto& p : products_) {
    products.push_back({p.M, p.K, p.N, p.times});
    products.push_back({p.K, p.N, p.M, p.times});
  }
  // Shares of forward that are computed again: attention, memory-bound bytes; and the number of
  // additional tensor-parallel collectives.
  struct Again {
    double attention, memory, collectives;
  };
  constexpr std::array kAgain{Again{0, 0, 0}, Again{1, 0, 0}, Again{0, 0.7, 2}, Again{1, 0.7, 2},
                              Again{1, 1, 4}};
  const Again& again = kAgain[static_cast<std::size_t>(layout_.recompute)];
  const double attention = attention_seconds(true), turn = context_turn();
  const double bytes = fused_bytes(true) + again.memory * fused_bytes(false);
  const double matmuls = seconds(products, arithmetic_of(layout_.precision));
  // torchtitan overlaps all collectives of forward, and the all-gathers of backward.
  const double beside = layout_.has_async_tensor ? 2 + again.collectives : engine_.beside_backward;
  return {.products = matmuls,
          .attention = attention + again.attention * forward_.attention,
          .memory = time_model_.memory_seconds(bytes) + 0.6 * cast_seconds(),
          .tensor = tensor_seconds(engine_.tensor_backward + again.collectives, beside, matmuls),
          .context = context_seconds(2 * turn, attention)};
}

// -------------------------------------------------------------------------------- a micro-batch

// If the stages do not divide the layers but divide layers + 2, the embedding and the head count as
// one layer each.
void Pricer::set_stages() {
  const double n = tokens_, V = real(model_.vocabulary), D = real(model_.width);
  const double t = layout_.tensor, layer = forward_.total() + backward_.total();
  const std::int64_t p = layout_.pipeline, stages = p * layout_.chunks;
  head_ = seconds({{n, V / t, D, 1}, {n, D, V / t, 1}, {D, V / t, n, 1}}, Arithmetic::bf16) +
          time_model_.memory_seconds(engine_.logit_bytes * n * V / t + 12 * n * D);
  const double table = time_model_.memory_seconds(14 * n * D / t);
  mean_ = (real(model_.layers) * layer + head_ + table) / real(p);
  if (p > 1 && model_.layers % stages != 0 && (model_.layers + 2) % stages == 0) {
    const double each = real((model_.layers + 2) / p);
    slowest_ = std::max(each * layer, (each - 1) * layer + head_);
    slowest_forward_ = each * forward_.total();
    return;
  }
  const double each = real((model_.layers + p - 1) / p);
  slowest_ = each * layer + head_ + (p == 1 ? table : 0);
  slowest_forward_ = each * forward_.total() + head_ / 3;
}

double Pricer::parameters() const {
  const double p = layout_.pipeline;
  const double tables = layout_.pipeline > 1 || model_.is_tied ? 1 : 2;
  return (real(model_.layers) / p * model_.layer_parameters() +
          tables * real(model_.vocabulary * model_.width)) /
         layout_.tensor;
}

double Pricer::accumulate_seconds() const {  // gradients, in fp32
  const bool is_full = layout_.sharding == PublishedSharding::full;
  return time_model_.memory_seconds(is_full ? 8 * parameters_ / layout_.group() : 6 * parameters_);
}

// Time of a micro-batch's sends. Interleaved stages hide most of it.
double Pricer::send_seconds() const {
  const int t = layout_.tensor, p = layout_.pipeline, v = layout_.chunks;
  if (p == 1) return 0;
  const bool is_inside = t * layout_.data_ranks() * p <= hardware_.domain_ranks;
  const double one = time_model_.collective_seconds({.kind = Collective::receive,
                                                     .bytes = 2 * tokens_ * real(model_.width) / t,
                                                     .ranks = 2,
                                                     .inside = is_inside ? 2 : 1});
  return 2 * v * one * (v == 1 ? 1 : 1 - kSendOverlap) + engine_.send_messages * constants_.message;
}

// ----------------------------------------------------------------------------- of the data ranks

// Cost of communication that takes `alone` seconds and overlaps `window` seconds of compute: its
// exposed part, and the slowdown of compute.
double Pricer::beside(double alone, double window, double slow) const {
  const double share = engine_.overlaps_data ? constants_.data_overlap : 0;
  const double hidden = share * std::min(alone, window);
  return alone - hidden + slow * hidden;
}

Pricer::DataSeconds Pricer::data_ranks(double compute) const {
  const int d = layout_.data_ranks(), t = layout_.tensor;
  const int inside = t <= hardware_.domain_ranks ? std::min(hardware_.domain_ranks / t, d) : 1;
  // a slow ring takes few multiprocessors, and little of HBM
  const double slow = hardware_.slowdown *
                      time_model_.ring(layout_.group(), inside).bytes_per_second /
                      hardware_.nvlink_bytes_per_second;
  if (layout_.sharding == PublishedSharding::full && layout_.pipeline == 1)
    return fully_sharded(compute, slow, inside);
  if (d == 1) return {};
  if (layout_.sharding != PublishedSharding::none)
    return {.micro_batch = 0, .step = reduced_once(compute, slow, inside)};
  const double alone = time_model_.all_reduce_seconds(engine_.gradient_bytes * parameters_, d,
                                                      inside, engine_.bucket_bytes);
  return {.micro_batch = 0, .step = beside(alone, compute - slowest_forward_, slow)};
}

// Each layer is gathered for forward and for backward, and reduced; the first gather and the last
// reduction have nothing beside them.
Pricer::DataSeconds Pricer::fully_sharded(double compute, double slow, int inside) const {
  const double units = real(model_.layers);
  const int group = layout_.group(), copies = layout_.data_ranks() / group;
  const double one = units * time_model_.gather_seconds(2 * parameters_ / units, group, inside);
  const double gather = one * (layout_.precision == PublishedPrecision::fp8_current ? 0.6 : 1.0);
  const double reduce = one * engine_.reduced_bytes / 2;
  const double backward = compute - slowest_forward_;
  const auto longer = [&](double alone, double window) {
    return std::max(window + slow * std::min(alone, window), alone) - window;
  };
  const double more = longer(gather, slowest_forward_) + longer(gather + reduce, backward);
  return {.micro_batch = more + (gather + reduce) / units,
          .step = 2 * time_model_.gather_seconds(engine_.reduced_bytes * parameters_ / group,
                                                 copies, 1)};
}

// Gradients are scattered beside the last backward, weights gathered beside the first forward.
double Pricer::reduced_once(double compute, double slow, int inside) const {
  const int d = layout_.data_ranks();
  const double calls = engine_.calls > 0
                           ? engine_.calls
                           : std::ceil(parameters_ / std::max(40e6, 1e6 * d));  // Megatron's
  const bool is_fp8 = engine_.gathers_fp8 && layout_.precision != PublishedPrecision::bf16;
  const double gradients = engine_.gradient_bytes * parameters_;
  const double scatter = engine_.scatters
                             ? time_model_.gather_seconds(gradients, d, inside, calls)
                             : time_model_.all_reduce_seconds(gradients, d, inside, gradients);
  const double gather =
      time_model_.gather_seconds((is_fp8 ? 1 : 2) * parameters_, d, inside, calls);
  // a pipeline of fully sharded ranks scatters after its last backward
  if (layout_.sharding == PublishedSharding::full)
    return scatter + beside(gather, slowest_forward_, slow);
  if (engine_.broadcasts)
    return beside(scatter, compute - slowest_forward_, slow) +
           time_model_.gather_seconds(2 * parameters_, layout_.group(), inside, layout_.group());
  if (!engine_.scatters) {  // after backward; then a copy of each parameter of each rank
    const double copies = 3 * d * real(model_.layers) / layout_.pipeline * constants_.launch_eager;
    return scatter + gather + std::max(copies, raw_bytes_seconds(12 * parameters_));
  }
  return beside(scatter, compute - slowest_forward_, slow) + beside(gather, slowest_forward_, slow);
}

// ---------------------------------------------------------------------------------------- a step

// 30 bytes per parameter of the state shard, and 4 for the gradient norm.
double Pricer::optimizer_seconds() const {
  const bool is_full = layout_.sharding == PublishedSharding::full;
  const double gradients = is_full ? layout_.group() : 1;
  const double states = layout_.sharding == PublishedSharding::none ? 1
                        : is_full                                   ? layout_.group()
                                                                    : layout_.data_ranks();
  return raw_bytes_seconds(30 * parameters_ / states + 4 * parameters_ / gradients +
                           engine_.pass_bytes * parameters_);
}

double Pricer::cast_weights_seconds() const {  // once a step, or as often as they are gathered
  if (layout_.precision == PublishedPrecision::bf16) return 0;
  const bool is_each = layout_.sharding == PublishedSharding::full &&
                       layout_.precision == PublishedPrecision::fp8_current;
  return raw_bytes_seconds(4 * parameters_) * (is_each ? layout_.micro_batches() : 1);
}

// Time in which the CPU launches the kernels and collectives of a micro-batch.
double Pricer::host_seconds() const {
  if (!engine_.is_python) return 0;
  const bool is_eager = engine_.execution == PublishedExecution::eager;
  double kernels = is_eager ? 60 : 45;  // of a layer, both ways
  if (!engine_.fuses_norms) kernels += 60;
  if (layout_.has_async_tensor) kernels += 6.0 * layout_.tensor * 4;  // copy, two signals, product
  double calls = 0;
  if (layout_.tensor > 1) calls += engine_.tensor_forward + engine_.tensor_backward;
  if (layout_.sharding == PublishedSharding::full) calls += 3;
  const double launch = is_eager ? constants_.launch_eager : constants_.launch_compiled;
  return real(model_.layers) / layout_.pipeline * (kernels * launch + calls * constants_.call);
}

RunPrice Pricer::price() const {
  const double m = layout_.micro_batches(), p = layout_.pipeline, v = layout_.chunks;
  const double accumulate = accumulate_seconds(), cast = cast_weights_seconds();
  const double compute = slowest_ + accumulate, send = send_seconds();
  const DataSeconds data = data_ranks(compute);
  const double layers = real(model_.layers) / p * m;
  RunPrice price;
  const auto both = [&](double LayerSeconds::*part) {
    return layers * (forward_.*part + backward_.*part);
  };
  price[RunPart::products] = both(&LayerSeconds::products);
  price[RunPart::attention] = both(&LayerSeconds::attention);
  price[RunPart::memory] = both(&LayerSeconds::memory);
  price[RunPart::tensor] = both(&LayerSeconds::tensor);
  price[RunPart::context] = both(&LayerSeconds::context);
  price[RunPart::head] = m * head_ / p;
  price[RunPart::uneven] = m * (slowest_ - mean_);
  price[RunPart::bubble] = (p - 1) / v * (mean_ + send / v);  // fills and drains
  price[RunPart::send] = m * send;
  price[RunPart::data] = m * data.micro_batch + data.step;
  price[RunPart::accumulate] = m * accumulate + cast;
  price[RunPart::optimizer] = optimizer_seconds();
  const double micro_batch = compute + send + data.micro_batch;
  const double optimizer =
      engine_.optimizer_kernels * real(model_.layers) / p * constants_.launch_eager;
  price[RunPart::host] = (engine_.is_python ? constants_.step_python : 0) + optimizer +
                         (layout_.reads_shared_file ? kReadSeconds * layout_.gpus : 0) +
                         m * std::max(0.0, host_seconds() - micro_batch);
  price[RunPart::spread] =
      constants_.spread * expected_maximum(layout_.gpus) * (m * compute + price[RunPart::bubble]);
  price.step_seconds = m * micro_batch + price[RunPart::bubble] + data.step +
                       price[RunPart::optimizer] + cast + price[RunPart::host] +
                       price[RunPart::spread];
  const double tokens =
      m * layout_.micro_batch * layout_.data * real(model_.sequence) / layout_.gpus;
  price.tokens_per_second = tokens / price.step_seconds;
  return price;
}

constexpr std::array<const char*, kRunParts> kPartNames{
    "products", "attention", "memory", "tensor",     "context",   "head", "uneven",
    "bubble",   "send",      "data",   "accumulate", "optimizer", "host", "spread"};

}  // namespace

double PublishedModel::qkv_columns() const {
  return static_cast<double>((heads + 2 * kv_heads) * head_size);
}

double PublishedModel::layer_parameters() const {
  return static_cast<double>(width) * qkv_columns() +
         static_cast<double>(heads * head_size * width + (is_gated ? 3 : 2) * width * mlp);
}

double PublishedModel::flops_a_token() const {
  const auto count = static_cast<double>(layers);
  return 6 * (count * layer_parameters() + static_cast<double>(vocabulary * width)) +
         12 * count * static_cast<double>(heads * head_size * sequence);
}

int PublishedLayout::micro_batches() const {
  const int each = data * micro_batch;
  return std::max(1, (global_batch + each - 1) / each);
}

const char* name(RunPart part) {
  return kPartNames[static_cast<std::size_t>(part)];
}

RunPrice price_run(const PublishedModel& model, const PublishedLayout& layout,
                   const Hardware& hardware, const PublishedEngine& engine,
                   const PublishedConstants& constants) {
  return Pricer(model, layout, hardware, engine, constants).price();
}

}  // namespace lockstep
