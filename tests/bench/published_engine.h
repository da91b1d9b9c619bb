// PublishedEngine describes another engine by facts that were read in its sources: kernels,
// overlap, collectives. PublishedConstants has the rates that each kind of kernel, overlap and
// network reaches (docs/planning.md; tests/bench/published/ has the throughputs and the fit).
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
  bool fuses_norms = true;  // norms and positions are one kernel each; else PyTorch operators
  double logit_bytes = 16;  // bytes per logit that head and loss move, forward and backward
  bool is_python = true;    // Python launches the kernels

  // Tensor-parallel all-gathers and reduce-scatters per layer (an all-reduce counts as two).
  // `beside_*` is the number of them that overlap matmuls.
  double tensor_forward = 4, tensor_backward = 6;
  double beside_forward = 0, beside_backward = 0;
  bool is_sequence_parallel = true;  // else each tensor-parallel rank computes all norms

  bool overlaps_data = true;   // collectives of the data ranks overlap compute
  double reduced_bytes = 2;    // of a gradient, as fully sharded ranks reduce it
  double gradient_bytes = 2;   // of a gradient, as others reduce it once a step
  double bucket_bytes = 25e6;  // of gradients that are all-reduced in one call
  double calls = 0;            // reduce-scatters per step; 0: Megatron's buckets
  bool scatters = true;        // reduce-scatters if optimizer state is sharded; else all-reduces
  bool gathers_fp8 = false;    // the all-gather of weights, once a step, is in fp8

  double send_messages = 0;      // per micro-batch and pipeline stage, each with a wait of the CPU
  double optimizer_kernels = 0;  // launches of the optimizer per layer
  // Additional bytes per parameter and step, to clip, zero and copy.
  double pass_bytes = 0;
  bool balances_context = true;  // each context rank has an early and a late part of a sequence
  bool overlaps_context = true;  // keys and values travel beside attention
  // After the optimizer each rank broadcasts the parameters that it has updated.
  bool broadcasts = false;
};

// docs/planning.md has the source of each; "fitted": by tests/bench/published/fit.py.
struct PublishedConstants {
  // Constants of GPUs, see Hardware; fitted. Under a lower power cap the rate falls as cap ^
  // power_exponent.
  double sustained_ampere = 0.839, sustained_hopper = 0.745, power_exponent = 0.885;
  double slowdown_ampere = 0.2, slowdown_hopper = 0.714;
  // Constants of kernels, see EngineEfficiency; fitted.
  double fp8_gain = 1.83, rowwise_gain = 1.06, tile_steps = 151, head_exponent = 0.077;
  // Share of the fp8 cast traffic that is not fused into other kernels, with delayed and current
  // scaling; fitted.
  double cast_delayed = 0.476, cast_current = 0.863;
  // Bytes of memory-bound operators, relative to those that are counted; fitted.
  double memory_eager = 1.07, memory_compiled = 1.16, memory_fused = 1.09;
  // Attention, relative to cuDNN 9 on Hopper; fitted.
  double triton_ampere = 0.722, triton_hopper = 0.384, flash2_hopper = 0.472;
  double cudnn8_hopper = 0.551, context_imbalance = 0.47;
  // Shares of collectives that are hidden; fitted.
  double tensor_overlap = 0.624, data_overlap = 0.741;
  // Share of the NIC payload that collectives reach, and seconds of a hop; all fitted except
  // hop_efa.
  double network_rdma = 0.907, network_efa = 0.605, hop_efa = 60e-6;
  double spread = kSpeedSpread;  // fitted
  double step_python = 23.9e-3;  // seconds of a step in which Python keeps the GPU idle; fitted
  // Seconds in which the CPU launches a kernel or a collective, and waits for a message.
  double launch_eager = 8e-6, launch_compiled = 5e-6, call = 50e-6, message = 100e-6;
};

struct PublishedConstant {
  std::string_view name;
  double PublishedConstants::*value;
};
std::span<const PublishedConstant> published_constants();

std::span<const PublishedEngine> published_engines();
// Throws Error if the name is unknown.
const PublishedEngine& published_engine(std::string_view name);

EngineEfficiency efficiency(const PublishedEngine& engine, const PublishedConstants& constants);
Hardware hardware_with(Hardware hardware, const PublishedConstants& constants);

}  // namespace lockstep
