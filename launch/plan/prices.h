// Prices: the seconds of a call of an operator or a collective on a GPU that need not be here, from
// its sizes. docs/planning.md derives each formula, and says what it was compared with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/op_log.h"
#include "core/system/hardware.h"
#include "dist/communicator.h"
#include "launch/plan/formula.h"

namespace lockstep {

// Constants that are no engine's. fitted: on published throughputs.
inline constexpr double kHbmShare = 0.85;     // of HBM's peak, that memory-bound kernels reach
inline constexpr double kFp8Gain = 1.84;      // fp8's rate over bf16's under one cap; fitted
inline constexpr double kRowwiseGain = 1.07;  // with a scale a row; fitted

// What an engine's kernels and collectives reach. Defaults: this engine's.
struct EngineNumbers {
  double products = 1;  // rate of products, of Hardware::sustained
  // Bytes that memory-bound operators move, of those that fused kernels would: ours state theirs.
  double memory_bound = 1;
  // Rate of attention by GpuArchitecture, of cuDNN's on Hopper; and of its backward beside that.
  std::array<double, 3> attention{0.9, 1.0, 1.0};
  double attention_backward = 1;
  // The same of the engine's own kernels, which compute document masks. They are of the design of
  // flash attention 2: the rate is what torchtitan's fit has for that one (published_engine.cpp).
  // Blackwell: assumed to be no faster than Hopper. Backward multiplies seven times, not five.
  std::array<double, 3> own_attention{0.9, 0.492, 0.216};
  double own_attention_backward = 5.0 / 7;
  double network = 0.9;             // share of the adapters' payload that collectives reach
  double node_hop_seconds = 14e-6;  // of a ring or a tree from one domain to the next: NCCL's tuner
};

// What a product multiplies. fp8_rowwise: with a scale for each row, as torchao does.
enum class Arithmetic : std::uint8_t { fp32, bf16, fp8, fp8_rowwise };
Arithmetic arithmetic_of(DType dtype);

struct ProductCall {  // [M, K] times [K, N]
  double M = 0, N = 0, K = 0;
  Arithmetic arithmetic = Arithmetic::bf16;
  double bytes = 0;  // of the three tensors
};
// Factors of `arithmetic`, fp8's one byte an element; the product in bf16, or fp32.
ProductCall product_call(double M, double N, double K, Arithmetic arithmetic);

struct AttentionCall {  // causal
  double flops = 0;     // what is below the diagonal; backward: 2.5 times forward's
  double sequence = 0;  // tokens that a query may look back at most
  double head_size = 0;
  bool is_backward = false;
  bool is_own = false;  // by the engine's own kernels, not by cuDNN
  Arithmetic arithmetic = Arithmetic::bf16;
};

// `inside`: how many ranks of the group one NVLink domain has.
struct CollectiveCall {
  Collective kind = Collective::all_gather;
  double bytes = 0;  // received, as Communicator counts them
  int ranks = 1, inside = 1;
};

Collective collective_of(const Op& op);

class Prices {
 public:
  explicit Prices(const Hardware& hardware, const EngineNumbers& engine = {});
  const Hardware& hardware() const { return hardware_; }
  const EngineNumbers& engine() const { return engine_; }

  // Of a call that has the GPU to itself. inside: as of a CollectiveCall, of the group op.group.
  double seconds(const Op& op, int inside) const;
  // The same, with what it comes from.
  Formula explain(const Op& op, int inside) const;

  // FLOP/s of a product of long K and many tiles.
  double product_rate(Arithmetic arithmetic) const;
  // Tiles over multiprocessors in waves, K + k0 steps each; where HBM needs as long, a smooth
  // maximum of both; and a launch.
  double product_seconds(const ProductCall& call) const;
  // The rate rises with the sequence as s / (s + s0).
  double attention_seconds(const AttentionCall& call) const;
  double memory_seconds(double bytes) const;
  double transfer_seconds(double bytes) const;
  double collective_seconds(const CollectiveCall& call) const;
  // Bytes that a rank receives a second, while they come.
  double received_per_second(const CollectiveCall& call) const;
  // Of the seconds that a collective runs beside compute, the share that compute loses: for the
  // bytes that come, and while nothing comes for the multiprocessors that wait for it. What a call
  // costs compute falls with a faster network. 0 of a GPU without NVLink.
  double lost_share(const CollectiveCall& call) const;

  // A ring of `ranks`, `inside` of them in each domain: it enters a domain over the adapters of its
  // own ranks only.
  struct Ring {
    double bytes_per_second = 0;  // bus bandwidth
    double latency_seconds = 0;
  };
  Ring ring(int ranks, int inside) const;
  // All-gather or reduce-scatter by a ring. bytes: of the whole, which goes in `calls` pieces.
  double gather_seconds(double bytes, int ranks, int inside, double calls = 1) const;
  // All-reduce of `bytes` in buckets, by a ring or a tree, whichever has less latency.
  double all_reduce_seconds(double bytes, int ranks, int inside, double bucket_bytes) const;

 private:
  // FLOP/s of attention over sequences without end.
  double attention_rate(const AttentionCall& call) const;
  Formula explain_product(const Op& op) const;
  Formula explain_attention(const Op& op) const;
  Formula explain_collective(const Op& op, int inside) const;
  double hbm_bytes_per_second() const { return hardware_.hbm_bytes_per_second * kHbmShare; }

  Hardware hardware_;
  EngineNumbers engine_;
};

}  // namespace lockstep
