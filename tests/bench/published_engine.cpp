#include "tests/bench/published_engine.h"

#include <array>
#include <cmath>

namespace lockstep {
namespace {

using Execution = PublishedExecution;
using Attention = PublishedAttention;

// Read in each engine's sources (docs/planning.md).
constexpr std::array kEngines{
    // llm-foundry 0.2 to 0.3 and composer 0.15 (2023): FSDP of torch 1.13 and 2.0, Triton's
    // attention, fp32 reduction. Two more cross entropies of each micro-batch are metrics. AdamW is
    // a loop over parameters with six kernels and a read by the CPU each: 10 launches, 12
    // parameters
    PublishedEngine{.name = "foundry",
                    .execution = Execution::eager,
                    .attention = Attention::triton,
                    .logit_bytes = 24,
                    .reduced_bytes = 4,
                    .optimizer_kernels = 120},
    // NeMo 24.03 to 24.07, Megatron core 0.8
    PublishedEngine{.name = "nemo24",
                    .attention = Attention::cudnn8,
                    .beside_forward = 4,
                    .beside_backward = 6,
                    .gathers_fp8 = true},
    // NeMo 25, Megatron-Bridge
    PublishedEngine{
        .name = "nemo25", .beside_forward = 4, .beside_backward = 6, .gathers_fp8 = true},
    // torchtitan 2024-12 to 2025-06: torch.compile, FSDP2, flash attention 2, fp32 reduction
    PublishedEngine{.name = "torchtitan",
                    .execution = Execution::compiled,
                    .attention = Attention::flash2,
                    .tensor_backward = 4,
                    .reduced_bytes = 4,
                    .gradient_bytes = 4,
                    .balances_context = false},
    // nanotron 0.5 (the ultra-scale playbook): flash attention 2, fp32 gradients. With ZeRO-1 one
    // all-reduce after backward, and copies of each parameter
    PublishedEngine{.name = "nanotron",
                    .execution = Execution::eager,
                    .attention = Attention::flash2,
                    .fabric = PublishedFabric::efa,
                    .logit_bytes = 45,
                    .beside_backward = 4,
                    .gradient_bytes = 4,
                    .bucket_bytes = 50e6,
                    .scatters = false,
                    .send_messages = 9,
                    .optimizer_kernels = 18,
                    .pass_bytes = 18},
    // picotron of February 2025: no sequence parallelism, one all-reduce for each of five matmuls
    // in
    // backward
    PublishedEngine{.name = "picotron",
                    .execution = Execution::eager,
                    .attention = Attention::flash2,
                    .fabric = PublishedFabric::efa,
                    .logit_bytes = 24,
                    .tensor_backward = 10,
                    .is_sequence_parallel = false,
                    .gradient_bytes = 4,
                    .send_messages = 2,
                    .optimizer_kernels = 9,
                    .pass_bytes = 10},
    PublishedEngine{.name = "maxtext", .execution = Execution::compiled},  // 2024-12
    PublishedEngine{                                                       // 2024-03
                    .name = "paxml",
                    .execution = Execution::compiled,
                    .attention = Attention::cudnn8},
    // fms-fsdp of 2024 without torch.compile: flash attention 2 on A100, bf16 reduction, norms and
    // positions by PyTorch operators
    PublishedEngine{.name = "fms",
                    .execution = Execution::eager,
                    .attention = Attention::flash2,
                    .fuses_norms = false,
                    .logit_bytes = 24},
    // llm.c, May 2024: one reduce-scatter after backward, nothing overlaps
    PublishedEngine{.name = "llmc", .is_python = false, .overlaps_data = false, .calls = 1},
    PublishedEngine{.name = "llmc_unfused",
                    .attention = Attention::unfused,
                    .is_python = false,
                    .overlaps_data = false,
                    .calls = 1},
    // Llama 3 (arXiv 2407.21783)
    PublishedEngine{.name = "llama3",
                    .attention = Attention::cudnn8,
                    .reduced_bytes = 4,
                    .gradient_bytes = 4,
                    .overlaps_context = false},
    PublishedEngine{.name = "internevo",
                    .execution = Execution::eager,
                    .attention = Attention::flash2,
                    .logit_bytes = 24,
                    .tensor_backward = 4,
                    .is_sequence_parallel = false,
                    .scatters = false,
                    .broadcasts = true},
    PublishedEngine{.name = "megatron21",
                    .attention = Attention::unfused,
                    .tensor_backward = 4,
                    .is_sequence_parallel = false,
                    .overlaps_data = false},
    // For sources that match no engine above
    PublishedEngine{
        .name = "other", .execution = Execution::compiled, .attention = Attention::flash2},
    // Megatron of 2022 (arXiv 2205.05198): attention not fused, nothing overlapped
    PublishedEngine{.name = "megatron22", .attention = Attention::unfused, .overlaps_data = false},
};

constexpr std::array kConstants{
    PublishedConstant{"sustained_ampere", &PublishedConstants::sustained_ampere},
    PublishedConstant{"sustained_hopper", &PublishedConstants::sustained_hopper},
    PublishedConstant{"power_exponent", &PublishedConstants::power_exponent},
    PublishedConstant{"slowdown_ampere", &PublishedConstants::slowdown_ampere},
    PublishedConstant{"slowdown_hopper", &PublishedConstants::slowdown_hopper},
    PublishedConstant{"fp8_gain", &PublishedConstants::fp8_gain},
    PublishedConstant{"rowwise_gain", &PublishedConstants::rowwise_gain},
    PublishedConstant{"tile_steps", &PublishedConstants::tile_steps},
    PublishedConstant{"head_exponent", &PublishedConstants::head_exponent},
    PublishedConstant{"cast_delayed", &PublishedConstants::cast_delayed},
    PublishedConstant{"cast_current", &PublishedConstants::cast_current},
    PublishedConstant{"memory_eager", &PublishedConstants::memory_eager},
    PublishedConstant{"memory_compiled", &PublishedConstants::memory_compiled},
    PublishedConstant{"memory_fused", &PublishedConstants::memory_fused},
    PublishedConstant{"triton_ampere", &PublishedConstants::triton_ampere},
    PublishedConstant{"triton_hopper", &PublishedConstants::triton_hopper},
    PublishedConstant{"flash2_hopper", &PublishedConstants::flash2_hopper},
    PublishedConstant{"cudnn8_hopper", &PublishedConstants::cudnn8_hopper},
    PublishedConstant{"context_imbalance", &PublishedConstants::context_imbalance},
    PublishedConstant{"tensor_overlap", &PublishedConstants::tensor_overlap},
    PublishedConstant{"data_overlap", &PublishedConstants::data_overlap},
    PublishedConstant{"network_rdma", &PublishedConstants::network_rdma},
    PublishedConstant{"network_efa", &PublishedConstants::network_efa},
    PublishedConstant{"spread", &PublishedConstants::spread},
    PublishedConstant{"step_python", &PublishedConstants::step_python},
};

}  // namespace

std::span<const PublishedEngine> published_engines() {
  return kEngines;
}

std::span<const PublishedConstant> published_constants() {
  return kConstants;
}

const PublishedEngine& published_engine(std::string_view name) {
  for (const PublishedEngine& engine : kEngines)
    if (engine.name == name) return engine;
  LOCKSTEP_FAIL("'", name, "' is not a known engine");
}

EngineEfficiency efficiency(const PublishedEngine& engine, const PublishedConstants& c) {
  EngineEfficiency numbers{.fp8_gain = c.fp8_gain,
                           .rowwise_gain = c.rowwise_gain,
                           .tile_steps = c.tile_steps,
                           .head_exponent = c.head_exponent};
  numbers.memory_bound = engine.execution == Execution::eager      ? c.memory_eager
                         : engine.execution == Execution::compiled ? c.memory_compiled
                                                                   : c.memory_fused;
  switch (engine.attention) {
    case Attention::unfused:
    case Attention::cudnn9: break;
    case Attention::triton:
      numbers.attention = {c.triton_ampere, c.triton_hopper, c.triton_hopper};
      numbers.attention_backward = 0.62;  // 0.55 of forward in Triton's tutorial; cuDNN has 0.885
      break;
    case Attention::flash2: numbers.attention = {0.9, c.flash2_hopper, c.flash2_hopper}; break;
    case Attention::cudnn8: numbers.attention = {0.9, c.cudnn8_hopper, c.cudnn8_hopper}; break;
  }
  numbers.network = c.network_rdma;
  if (engine.fabric == PublishedFabric::efa) {
    numbers.network = c.network_efa;
    numbers.node_hop_seconds = numbers.node_level_seconds = c.hop_efa;
  }
  return numbers;
}

Hardware hardware_with(Hardware hardware, const PublishedConstants& c) {
  if (hardware.architecture == GpuArchitecture::blackwell || hardware.domain_ranks < 8)
    return hardware;  // not fitted
  const bool is_hopper = hardware.architecture == GpuArchitecture::hopper;
  if (hardware.power < 1) hardware.power = std::pow(500.0 / 700, c.power_exponent);
  hardware.sustained = (is_hopper ? c.sustained_hopper : c.sustained_ampere) * hardware.power;
  hardware.slowdown = is_hopper ? c.slowdown_hopper : c.slowdown_ampere;
  return hardware;
}

}  // namespace lockstep
