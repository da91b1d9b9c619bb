// PublishedEngine states how another engine works: its kernels, what overlaps, which collectives it
// makes. PublishedConstants has what each kind of kernel, overlap and network reaches. The kinds
// are shared by engines, and no engine has a constant of its own (docs/planning.md;
// tests/bench/published/ has the throughputs and the fit).
#pragma once

#include <span>
#include <string_view>

#include "launch/plan/time_model.h"

namespace lockstep {

// How memory-bound operators run: one PyTorch operator after the other; compiled (torch.compile,
// XLA); or by kernels that were fused by hand (Transformer Engine, llm.c).
enum class PublishedExecution : std::uint8_t { eager, compiled, fused };
enum class PublishedAttention : std::uint8_t { unfused, triton, flash2, cudnn8, cudnn9 };
// Networks between hosts: InfiniBand or RoCE; AWS EFA.
enum class PublishedFabric : std::uint8_t { rdma, efa };

struct PublishedEngine {
  std::string_view name;
  PublishedExecution execution = PublishedExecution::fused;
  PublishedAttention attention = PublishedAttention::cudnn9;
  PublishedFabric fabric = PublishedFabric::rdma;
  bool fuses_norms = true;  // norms and positions are one kernel each, and not PyTorch operators
  double logit_bytes = 16;  // moved by head and loss, both ways
  bool is_python = true;    // the host code of a step

  // Collectives of tensor-parallel ranks in a layer: gathers and scatters of its activations (an
  // all-reduce counts twice), and how many of them run beside matmuls.
  double tensor_forward = 4, tensor_backward = 6;
  double beside_forward = 0, beside_backward = 0;
  bool is_sequence_parallel = true;  // else each tensor-parallel rank computes all norms

  bool overlaps_data = true;   // collectives of the data ranks run beside compute
  double reduced_bytes = 2;    // of a gradient, as fully sharded ranks reduce it
  double gradient_bytes = 2;   // of a gradient, as others reduce it once a step
  double bucket_bytes = 25e6;  // of gradients that are all-reduced in one call
  double calls = 0;            // of reduce-scatters in a step; 0: Megatron's buckets
  bool scatters = true;        // with sharded optimizer state; else gradients are all-reduced
  bool gathers_fp8 = false;    // weights, once a step

  double send_messages = 0;      // that the host waits for, of a micro-batch in a pipeline stage
  double optimizer_kernels = 0;  // of a layer, launched one by one
  // Of a parameter in a step: passes to clip, zero and copy whole gradients and weights.
  double pass_bytes = 0;
  bool balances_context = true;  // each context rank has an early and a late part of a sequence
  bool overlaps_context = true;  // keys and values travel beside attention
  // Each rank has its own parameters, and broadcasts them after the optimizer.
  bool broadcasts = false;
  double read_seconds = 0;  // of a batch from a file of all ranks, one rank after the other
};

// docs/planning.md has the source of each; "fitted": by tests/bench/published/fit.py.
struct PublishedConstants {
  // Of GPUs; see Hardware; fitted. Under a lower power cap the rate falls as cap ^ power_exponent.
  double sustained_ampere = 0.838, sustained_hopper = 0.744, power_exponent = 0.884;
  double slowdown_ampere = 0.2, slowdown_hopper = 0.707;
  // Of kernels; see EngineEfficiency; fitted.
  double fp8_gain = 1.83, rowwise_gain = 1.06, tile_steps = 152, head_exponent = 0.077;
  // Share of the traffic of fp8 casts that no neighbour does, with delayed and current scaling;
  // fitted.
  double cast_delayed = 0.479, cast_current = 0.866;
  // Bytes of memory-bound operators, relative to those that are counted; fitted.
  double memory_eager = 1.075, memory_compiled = 1.18, memory_fused = 1.095;
  // Attention, relative to cuDNN 9 on Hopper; fitted.
  double triton_ampere = 0.72, triton_hopper = 0.383, flash2_hopper = 0.472;
  double cudnn8_hopper = 0.55, context_imbalance = 0.474;
  // Shares of collectives that are hidden; fitted.
  double tensor_overlap = 0.624, data_overlap = 0.74;
  // Share of the NIC payload that collectives reach, and seconds of a hop; fitted, but hop_efa.
  double network_rdma = 0.907, network_efa = 0.604, hop_efa = 60e-6;
  double spread = kSpeedSpread;  // fitted
  double step_python = 23.8e-3;  // seconds of a step in which Python keeps the GPU idle; fitted
  // Seconds of a Python host: a kernel, a collective, and a message that it waits for.
  double launch_eager = 8e-6, launch_compiled = 5e-6, call = 50e-6, message = 100e-6;
};

struct PublishedConstant {
  std::string_view name;
  double PublishedConstants::*value;
};
std::span<const PublishedConstant> published_constants();

std::span<const PublishedEngine> published_engines();
// Throws Error where there is none of that name.
const PublishedEngine& published_engine(std::string_view name);

EngineEfficiency efficiency(const PublishedEngine& engine, const PublishedConstants& constants);
Hardware hardware_with(Hardware hardware, const PublishedConstants& constants);

}  // namespace lockstep
