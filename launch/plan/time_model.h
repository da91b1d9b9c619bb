// TimeModel predicts the time of an operator or a collective on a GPU from its sizes. The GPU need
// not be present. docs/planning.md derives each formula and compares it with measurements.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/op_log.h"
#include "core/system/hardware.h"
#include "dist/communicator.h"
#include "launch/plan/formula.h"

namespace lockstep {

// Constants that do not depend on the engine. "fitted": fitted to published throughputs.
inline constexpr double kHbmShare = 0.85;  // share of the HBM peak of memory-bound kernels

// Standard deviation of the speed of GPUs of one kind, relative to its mean; fitted.
inline constexpr double kSpeedSpread = 0.009;
// Expected maximum of n standard normal numbers, by its asymptotic expansion (Cramer 1946, section
// 28.6): r - (ln ln n + ln 4 pi - 2 gamma) / 2 r with r = sqrt(2 ln n) and Euler's gamma; 0 for n
// below 2. It is 7 % too high for 8, and 1 % for 1,024.
double expected_maximum(double n);

// Efficiency of an engine's kernels and collectives. The defaults are those of this engine.
struct EngineEfficiency {
  double products = 1;  // matmul rate relative to Hardware::sustained
  // Bytes of memory-bound operators relative to those that are counted. Operators of this engine
  // state the bytes that they move.
  double memory_bound = 1;
  // Attention rate by GpuArchitecture relative to cuDNN on Hopper, and backward relative to
  // forward.
  std::array<double, 3> attention{0.9, 1.0, 1.0};
  double attention_backward = 1;
  // The same for the engine's own kernels, which support document masks. They follow
  // FlashAttention-2, whose rate is fitted (docs/planning.md). Blackwell
  // is assumed to be no faster than Hopper. Backward has seven matmuls instead of five.
  std::array<double, 3> own_attention{0.9, 0.472, 0.208};
  double own_attention_backward = 5.0 / 7;
  double network = 0.9;             // share of the NIC payload that collectives reach
  double node_hop_seconds = 14e-6;  // hop of a ring between NVLink domains: NCCL's tuner
  // Level of a tree between NVLink domains, with the time to fill it (docs/planning.md).
  double node_level_seconds = 40e-6;
  // Constants of kernels, which do not depend on the engine; fitted.
  double fp8_gain = 1.83;        // fp8 rate / bf16 rate under one power cap
  double rowwise_gain = 1.06;    // the same with a scale per row
  double tile_steps = 151;       // prologue and epilogue of a matmul's tile, in steps of K
  double head_exponent = 0.077;  // of (head size / 128) in the attention rate, below 128
};

// Arithmetic of a matmul. fp8_rowwise has a scale per row, as in torchao.
enum class Arithmetic : std::uint8_t { fp32, bf16, fp8, fp8_rowwise };
Arithmetic arithmetic_of(DType dtype);

struct MatmulCall {  // [M, K] times [K, N]
  double M = 0, N = 0, K = 0;
  Arithmetic arithmetic = Arithmetic::bf16;
  double bytes = 0;  // of the three matrices
};
// A matmul with inputs of this arithmetic (fp8: 1 byte per element) and output in bf16 or fp32.
MatmulCall matmul_call(double M, double N, double K, Arithmetic arithmetic);

struct AttentionCall {  // causal
  double flops = 0;     // below the diagonal only; backward: 2.5 times the forward
  double sequence = 0;  // most tokens that a query attends to
  double head_size = 0;
  bool is_backward = false;
  bool is_own = false;  // by the engine's own kernels, not by cuDNN
  Arithmetic arithmetic = Arithmetic::bf16;
};

// `inside`: number of ranks of the group in one NVLink domain.
struct CollectiveCall {
  Collective kind = Collective::all_gather;
  double bytes = 0;  // received, as Communicator counts them
  int ranks = 1, inside = 1;
  bool by_copy_engines = false;  // takes no multiprocessors
};

Collective collective_of(const Op& op);
// Describes the collective `op`, made as by the groups of dist/nccl_groups.cpp.
CollectiveCall collective_call(const Op& op, int inside);

class TimeModel {
 public:
  explicit TimeModel(const Hardware& hardware, const EngineEfficiency& engine = {});
  const Hardware& hardware() const { return hardware_; }
  const EngineEfficiency& engine() const { return engine_; }

  // Time of a call that has the GPU to itself. `inside` is that of the group op.group, see
  // CollectiveCall.
  double seconds(const Op& op, int inside) const;
  // The same with its formula.
  Formula explain(const Op& op, int inside) const;

  // FLOP/s of a matmul with long K and many tiles.
  double matmul_rate(Arithmetic arithmetic) const;
  // Tiles run on multiprocessors in waves of K + k0 steps. The result is a smooth maximum of this
  // time and the HBM time, plus a launch.
  double matmul_seconds(const MatmulCall& call) const;
  // The rate rises with the sequence length s as s / (s + s0).
  double attention_seconds(const AttentionCall& call) const;
  double memory_seconds(double bytes) const;
  double transfer_seconds(double bytes) const;
  double collective_seconds(const CollectiveCall& call) const;
  // Latency of a call. It grows with the peers of an all-to-all, and with the ring of other calls.
  double latency_seconds(const CollectiveCall& call) const;
  // Bytes per second that a rank receives during the transfer.
  double received_per_second(const CollectiveCall& call) const;
  // Share of the time of a concurrent collective that compute loses: to the received bytes, and to
  // the multiprocessors that wait for data. The loss per call falls with a faster network. It is 0
  // for a GPU without NVLink, and for copy engines.
  double lost_share(const CollectiveCall& call) const;

  // A ring of `ranks` ranks with `inside` of them in each NVLink domain. It enters a domain only
  // over the NICs of its own ranks.
  struct Ring {
    double bytes_per_second = 0;  // bus bandwidth
    double latency_seconds = 0;
  };
  Ring ring(int ranks, int inside) const;
  // Time of a ring all-gather or reduce-scatter of `bytes` in total, in `calls` pieces.
  double gather_seconds(double bytes, int ranks, int inside, double calls = 1) const;
  // Time of an all-reduce of `bytes` in buckets, by ring or tree, whichever has less latency.
  double all_reduce_seconds(double bytes, int ranks, int inside, double bucket_bytes) const;

 private:
  // FLOP/s of attention in the limit of long sequences.
  double attention_rate(const AttentionCall& call) const;
  Formula explain_matmul(const Op& op) const;
  Formula explain_attention(const Op& op) const;
  Formula explain_collective(const Op& op, int inside) const;
  double hbm_bytes_per_second() const { return hardware_.hbm_bytes_per_second * kHbmShare; }

  Hardware hardware_;
  EngineEfficiency engine_;
};

}  // namespace lockstep
