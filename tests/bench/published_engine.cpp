#include "tests/bench/published_engine.h"

#include <array>

namespace lockstep {
namespace {

// attention: of Ampere, Hopper, Blackwell. Each says what its numbers were fitted on, and which
// defaults of the engine are its source's.
constexpr std::array kEngines{
    // llm-foundry 0.2 to 0.3 (2023): torch 1.13 and 2.0, FSDP, Triton's attention, whose backward
    // its tutorial shows at 0.55 of forward's rate (cuDNN: 0.885), fp32 reduction; 66 rows
    PublishedEngine{.name = "foundry",
                    .numbers = {.products = 1.02,
                                .memory_bound = 1.22,
                                .attention = {0.711, 0.377, 0.377},
                                .attention_backward = 0.62},
                    .step_seconds = 0.0226,
                    .reduced_bytes = 4},
    // NeMo 24.03 to 24.07, Megatron core 0.8; 10 rows
    PublishedEngine{.name = "nemo24",
                    .numbers = {.memory_bound = 1.12, .attention = {0.9, 0.614, 0.614}},
                    .overlap = 0.453,
                    .gathers_fp8 = true},
    // NeMo 25, Megatron-Bridge; 44 rows
    PublishedEngine{.name = "nemo25",
                    .numbers = {.memory_bound = 1.12, .attention = {0.9, 1.02, 1.02}},
                    .overlap = 0.714,
                    .step_seconds = 0.0402,
                    .gathers_fp8 = true},
    // torchtitan 2024-12 to 2025-06: torch.compile, FSDP2, flash attention 2, fp32 reduction; 21
    PublishedEngine{
        .name = "torchtitan",
        .numbers = {.products = 0.98, .memory_bound = 1.16, .attention = {0.9, 0.492, 0.492}},
        .overlap = 0.424,
        .context_imbalance = 0.539,
        .reduced_bytes = 4},
    // nanotron 0.5 (the ultra-scale playbook): flash attention 2, fp32 gradients; 10 rows
    PublishedEngine{.name = "nanotron",
                    .numbers = {.products = 0.965,
                                .memory_bound = 1.81,
                                .attention = {0.9, 0.6, 0.6},
                                .network = 0.607},
                    .overlap = 0.382,
                    .data_overlap = 0.422,
                    .gradient_bytes = 4},
    // MaxText 2024-12; 4 rows
    PublishedEngine{.name = "maxtext",
                    .numbers = {.products = 1.05, .memory_bound = 1.11, .network = 0.888}},
    // PaxML 2024-03; 5 rows
    PublishedEngine{.name = "paxml",
                    .numbers = {.products = 0.958, .memory_bound = 1.2, .network = 0.92},
                    .step_seconds = 0.107},
    // fms-fsdp: flash attention 2 on A100, bf16 reduction; one number, 2 rows
    PublishedEngine{.name = "fms", .numbers = {.products = 0.963, .memory_bound = 1.5}},
    // llm.c, May 2024, nothing overlapped, a gradient tensor a layer; 2 rows, which two numbers
    // (NCCL over sockets?) fit whatever the form is
    PublishedEngine{
        .name = "llmc",
        .numbers = {.memory_bound = 1.0, .network = 0.00254, .node_hop_seconds = 8.21e-5},
        .data_overlap = 0,
        .calls = 148},
    // Megatron of 2022 (arXiv 2205.05198): attention not fused, nothing overlapped. Not fitted
    PublishedEngine{
        .name = "selene", .numbers = {.memory_bound = 1.2}, .overlap = 0, .fuses_attention = false},
};

}  // namespace

std::span<const PublishedEngine> published_engines() {
  return kEngines;
}

const PublishedEngine& published_engine(std::string_view name) {
  for (const PublishedEngine& engine : kEngines)
    if (engine.name == name) return engine;
  LOCKSTEP_FAIL("'", name, "' is no engine whose numbers are known");
}

}  // namespace lockstep
