#include "launch/plan/time_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace lockstep {
namespace {

// Matmuls: the lost share of the idle multiprocessors of the last wave (split-K recovers the rest),
// and a launch.
constexpr double kQuantised = 0.5, kLaunchSeconds = 3e-6;
struct Tile {
  double rows, columns, rate;
};
constexpr std::array kTiles{Tile{128, 256, 1.0}, Tile{256, 128, 1.0}, Tile{128, 128, 0.9}};

// Attention: share of the bf16 peak of cuDNN on an H200 for long sequences and heads of 128, and
// the sequence length with half of that.
struct Kernel {
  double share, half_sequence;
};
constexpr Kernel kForward{0.72, 969}, kBackward{0.637, 1439};

// Collectives: NCCL's tuner.
constexpr double kCallSeconds = 8.4e-6, kHopSeconds = 3.4e-6, kTreeHopSeconds = 4e-6;
constexpr double kAllToAllShare = 0.8;  // of NVLink's bus bandwidth, by kernels
// Time of NCCL's proxy thread for each peer in another domain; assumed.
constexpr double kPeerSeconds = 2e-6;
// Cost of a waiting collective to compute, relative to one at NVLink speed: it holds 16 of the 132
// multiprocessors of an H100.
constexpr double kWaiting = 0.18;
// Sends from one rank to another, over NVLink and over NICs, and the least share of NIC bandwidth.
constexpr double kSendSeconds = 10e-6, kSendAcrossSeconds = 20e-6, kSendShare = 0.3;

double element_bytes(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::fp32 ? 4 : arithmetic == Arithmetic::bf16 ? 2 : 1;
}

// Steps of K of a tile, with prologue and epilogue, which are no faster in fp8.
double steps_of(const MatmulCall& call, const EngineEfficiency& engine) {
  return call.K + engine.tile_steps * (element_bytes(call.arithmetic) == 1 ? engine.fp8_gain : 1);
}

// The fastest tiling of a matmul.
struct Tiling {
  Tile tile;
  double waves = 0, work = std::numeric_limits<double>::infinity();  // FLOPs, idle ones included
};
Tiling tiling_of(const MatmulCall& call, double multiprocessors, const EngineEfficiency& engine) {
  Tiling best{};
  for (const Tile& tile : kTiles) {
    double waves =
        std::ceil(call.M / tile.rows) * std::ceil(call.N / tile.columns) / multiprocessors;
    waves += kQuantised * (std::ceil(waves) - waves);
    const double work =
        waves * multiprocessors * 2 * tile.rows * tile.columns * steps_of(call, engine) / tile.rate;
    if (work < best.work) best = {tile, waves, work};
  }
  return best;
}

MatmulCall product_of(const Op& op) {
  const auto size = [&](std::size_t i) { return static_cast<double>(op.sizes[i]); };
  return {size(0), size(1), size(2), arithmetic_of(op.dtype), static_cast<double>(op.bytes)};
}

AttentionCall attention_of(const Op& op) {
  return {.flops = op.flops,
          .sequence = static_cast<double>(op.sizes[1]),
          .head_size = static_cast<double>(op.sizes[3]),
          .is_backward = std::string_view(op.name).ends_with("backward"),
          .is_own = !std::string_view(op.name).starts_with("cudnn"),
          .arithmetic = arithmetic_of(op.dtype)};
}

}  // namespace

double expected_maximum(double n) {
  if (n < 2) return 0;
  const double r = std::sqrt(2 * std::log(n));
  const double lower = std::log(std::log(n)) + std::log(4 * std::numbers::pi);
  return r - (lower - 2 * std::numbers::egamma) / (2 * r);
}

Collective collective_of(const Op& op) {
  for (std::size_t i = 0; i < kCollectives; ++i)
    if (const auto kind = static_cast<Collective>(i); std::string_view(op.name) == name(kind))
      return kind;
  LOCKSTEP_FAIL("unknown collective '", op.name, "'");
}

CollectiveCall collective_call(const Op& op, int inside) {
  const auto kind = collective_of(op);
  const bool moves_only = kind == Collective::all_gather || kind == Collective::all_to_all;
  const bool is_large = op.group != Group::all && op.group != Group::other;
  return {.kind = kind,
          .bytes = static_cast<double>(op.bytes),
          .ranks = op.ranks,
          .inside = inside,
          .by_copy_engines = moves_only && is_large && inside >= op.ranks};
}

Arithmetic arithmetic_of(DType dtype) {
  if (dtype == DType::fp32) return Arithmetic::fp32;
  if (dtype == DType::bf16) return Arithmetic::bf16;
  LOCKSTEP_CHECK(dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2, "no matmul supports ",
                 name(dtype));
  return Arithmetic::fp8;
}

MatmulCall matmul_call(double M, double N, double K, Arithmetic arithmetic) {
  const double in = element_bytes(arithmetic), out = std::max(in, 2.0);
  return {M, N, K, arithmetic, in * (M * K + N * K) + out * M * N};
}

TimeModel::TimeModel(const Hardware& hardware, const EngineEfficiency& engine)
    : hardware_(hardware), engine_(engine) {}

double TimeModel::seconds(const Op& op, int inside) const {
  const auto bytes = static_cast<double>(op.bytes);
  switch (op.kind) {
    case Op::Kind::product: return matmul_seconds(product_of(op));
    case Op::Kind::attention: return attention_seconds(attention_of(op));
    case Op::Kind::memory: return memory_seconds(bytes);
    case Op::Kind::transfer: return transfer_seconds(bytes);
    case Op::Kind::collective: return collective_seconds(collective_call(op, inside));
  }
  LOCKSTEP_FAIL(op.name, " has no kind");
}

double TimeModel::matmul_rate(Arithmetic arithmetic) const {
  const double reached = hardware_.sustained * engine_.products;
  if (arithmetic == Arithmetic::fp32) return hardware_.fp32_flops * reached;
  const double gain = arithmetic == Arithmetic::fp8           ? engine_.fp8_gain
                      : arithmetic == Arithmetic::fp8_rowwise ? engine_.rowwise_gain
                                                              : 1.0;
  return hardware_.bf16_flops * reached * gain;
}

double TimeModel::matmul_seconds(const MatmulCall& call) const {
  const double compute =
      tiling_of(call, hardware_.multiprocessors, engine_).work / matmul_rate(call.arithmetic);
  const double traffic = call.bytes / hbm_bytes_per_second();
  return std::pow(std::pow(compute, 4) + std::pow(traffic, 4), 0.25) + kLaunchSeconds;
}

double TimeModel::attention_rate(const AttentionCall& call) const {
  const Kernel& kernel = call.is_backward ? kBackward : kForward;
  const bool is_fp32 = call.arithmetic == Arithmetic::fp32;
  const double peak = is_fp32 ? hardware_.fp32_flops : hardware_.bf16_flops;
  const bool is_own = call.is_own && !is_fp32;  // fp32 has only one kind of kernel
  const auto& rates = is_own ? engine_.own_attention : engine_.attention;
  const double backward = is_own ? engine_.own_attention_backward : engine_.attention_backward;
  const double engine =
      rates[static_cast<std::size_t>(hardware_.architecture)] * (call.is_backward ? backward : 1);
  const double heads = std::pow(std::min(1.0, call.head_size / 128), engine_.head_exponent);
  return peak * std::sqrt(hardware_.power) * engine * kernel.share * heads;
}

double TimeModel::attention_seconds(const AttentionCall& call) const {
  const Kernel& kernel = call.is_backward ? kBackward : kForward;
  return call.flops /
         (attention_rate(call) * call.sequence / (call.sequence + kernel.half_sequence));
}

double TimeModel::memory_seconds(double bytes) const {
  return bytes * engine_.memory_bound / hbm_bytes_per_second();
}

double TimeModel::transfer_seconds(double bytes) const {
  return bytes / hardware_.host_bytes_per_second;
}

TimeModel::Ring TimeModel::ring(int ranks, int inside) const {
  inside = std::clamp(inside, 1, ranks);
  const int nodes = (ranks + inside - 1) / inside;
  const double adapters = inside * hardware_.nic_bytes_per_second * engine_.network;
  const double nvlink = hardware_.nvlink_bytes_per_second;
  const bool has_inside = inside > 1;  // otherwise NVLink is not used, and may be missing
  return {.bytes_per_second = nodes == 1   ? nvlink
                              : has_inside ? std::min(nvlink, adapters)
                                           : adapters,
          .latency_seconds = kCallSeconds + (ranks - nodes) * kHopSeconds +
                             (nodes - 1) * engine_.node_hop_seconds};
}

double TimeModel::gather_seconds(double bytes, int ranks, int inside, double calls) const {
  if (ranks <= 1) return 0;
  const Ring r = ring(ranks, inside);
  return calls * r.latency_seconds + bytes * (ranks - 1) / ranks / r.bytes_per_second;
}

double TimeModel::all_reduce_seconds(double bytes, int ranks, int inside,
                                     double bucket_bytes) const {
  if (ranks <= 1) return 0;
  const Ring r = ring(ranks, inside);
  inside = std::clamp(inside, 1, ranks);
  const double nodes = static_cast<double>(ranks) / inside;
  const double tree = kCallSeconds + 2 * ((inside - 1) * kTreeHopSeconds +
                                          std::log2(nodes) * engine_.node_level_seconds);
  const double calls = std::ceil(bytes / bucket_bytes);
  return calls * std::min(2 * r.latency_seconds, tree) +
         2 * bytes * (ranks - 1) / ranks / r.bytes_per_second;
}

double TimeModel::latency_seconds(const CollectiveCall& call) const {
  if (call.kind != Collective::all_to_all) return ring(call.ranks, call.inside).latency_seconds;
  const int inside = std::clamp(call.inside, 1, call.ranks), others = call.ranks - inside;
  return kCallSeconds + (inside - 1) * kHopSeconds +
         (others > 0 ? engine_.node_hop_seconds + others * kPeerSeconds : 0);
}

double TimeModel::received_per_second(const CollectiveCall& call) const {
  const double nvlink = hardware_.nvlink_bytes_per_second;
  const double adapter = hardware_.nic_bytes_per_second;
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::broadcast:
    case Collective::all_reduce:
    case Collective::barrier: return ring(call.ranks, call.inside).bytes_per_second;
    case Collective::all_to_all: {
      // Each pair of ranks has its own path. Data from other domains cross the NIC of this rank,
      // concurrently with data from its own domain.
      const int inside = std::clamp(call.inside, 1, call.ranks);
      const double across = static_cast<double>(call.ranks - inside) / (call.ranks - 1);
      const double share = call.by_copy_engines ? 1 : kAllToAllShare;
      const double own = inside > 1 ? (1 - across) / (share * nvlink) : 0;
      return 1 / std::max(own, across / (adapter * engine_.network));
    }
    case Collective::send:
    case Collective::receive:
      return call.inside >= call.ranks ? nvlink : adapter * std::max(engine_.network, kSendShare);
  }
  LOCKSTEP_FAIL("a collective has no kind");
}

Formula TimeModel::explain(const Op& op, int inside) const {
  Formula formula = [&]() -> Formula {
    const Formula::Input bytes{"bytes", static_cast<double>(op.bytes)};
    switch (op.kind) {
      case Op::Kind::product: return explain_matmul(op);
      case Op::Kind::attention: return explain_attention(op);
      case Op::Kind::collective: return explain_collective(op, inside);
      case Op::Kind::transfer:
        return {.text = "bytes / host_per_second",
                .inputs = {bytes, {"host_per_second", hardware_.host_bytes_per_second}}};
      case Op::Kind::memory:
        return {.text = "bytes * memory_bound / memory_per_second",
                .inputs = {bytes,
                           {"memory_bound", engine_.memory_bound},
                           {"memory_per_second", hbm_bytes_per_second()}}};
    }
    LOCKSTEP_FAIL(op.name, " has no kind");
  }();
  return {.name = str(op.name, "_seconds"),
          .text = std::move(formula.text),
          .inputs = std::move(formula.inputs),
          .value = seconds(op, inside),
          .unit = "s"};
}

Formula TimeModel::explain_matmul(const Op& op) const {
  const auto call = product_of(op);
  const auto tiling = tiling_of(call, hardware_.multiprocessors, engine_);
  return {.text =
              "((waves * multiprocessors * 2 * tile_rows * tile_columns * (K + tile_steps) / "
              "tile_rate / flops_per_second) ** 4 + (bytes / memory_per_second) ** 4) ** 0.25 "
              "+ launch_seconds",
          .inputs = {{"M", call.M},
                     {"N", call.N},
                     {"K", call.K},
                     {"waves", tiling.waves},
                     {"multiprocessors", static_cast<double>(hardware_.multiprocessors)},
                     {"tile_rows", tiling.tile.rows},
                     {"tile_columns", tiling.tile.columns},
                     {"tile_steps", steps_of(call, engine_) - call.K},
                     {"tile_rate", tiling.tile.rate},
                     {"flops_per_second", matmul_rate(call.arithmetic)},
                     {"bytes", call.bytes},
                     {"memory_per_second", hbm_bytes_per_second()},
                     {"launch_seconds", kLaunchSeconds}}};
}

Formula TimeModel::explain_attention(const Op& op) const {
  const auto call = attention_of(op);
  return {.text = "flops / (flops_per_second * sequence / (sequence + half_sequence))",
          .inputs = {{"flops", call.flops},
                     {"flops_per_second", attention_rate(call)},
                     {"sequence", call.sequence},
                     {"half_sequence", (call.is_backward ? kBackward : kForward).half_sequence}}};
}

Formula TimeModel::explain_collective(const Op& op, int inside) const {
  const auto call = collective_call(op, inside);
  const double moving = call.bytes / received_per_second(call);
  return {.text = "latency_seconds + bytes / received_per_second",
          .inputs = {{"ranks", static_cast<double>(call.ranks)},
                     {"ranks_of_a_domain", static_cast<double>(call.inside)},
                     {"latency_seconds", collective_seconds(call) - moving},
                     {"bytes", call.bytes},
                     {"received_per_second", received_per_second(call)}}};
}

double TimeModel::lost_share(const CollectiveCall& call) const {
  if (call.ranks <= 1 || hardware_.nvlink_bytes_per_second == 0 || call.by_copy_engines) return 0;
  const double rate = call.bytes / collective_seconds(call);
  return hardware_.slowdown * std::max(rate / hardware_.nvlink_bytes_per_second, kWaiting);
}

double TimeModel::collective_seconds(const CollectiveCall& call) const {
  if (call.ranks <= 1) return 0;
  const double latency = latency_seconds(call);
  const double moving = call.bytes / received_per_second(call);
  switch (call.kind) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::broadcast:
    case Collective::all_to_all: return latency + moving;
    case Collective::all_reduce: {
      const double whole = call.bytes * call.ranks / (2.0 * (call.ranks - 1));
      return all_reduce_seconds(whole, call.ranks, call.inside, std::max(whole, 1.0));
    }
    case Collective::send:
    case Collective::receive:
      return (call.inside >= call.ranks ? kSendSeconds : kSendAcrossSeconds) + moving;
    case Collective::barrier: return 2 * latency;
  }
  LOCKSTEP_FAIL("a collective has no kind");
}

}  // namespace lockstep
