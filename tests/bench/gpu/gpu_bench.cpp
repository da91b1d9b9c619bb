// What a GPU reaches, beside its own copy rate and its own best matrix product, in one run:
//
//   cmake --preset cuda -DLOCKSTEP_BENCHMARKS=ON && cmake --build --preset cuda --target gpu_bench
//   build/cuda/bench/gpu_bench [PART...]     default: memory matmul fp8 attention and the models
// parts: copy memory matmul fp8 attention beside beside_tiny gpt2_124m gpt2_1.5b llama_1b
// llama_3b_8k llama_8b llama_8b_8k llama_8b_offloaded (which pins 90 GiB) qwen2_1.5b qwen2_7b
//
// Each figure is of ten calls between two events, best and median of nine rounds, on random numbers
// (zeros draw less power, and run faster). Rows that miss a goal end with `missed`; the line below
// a table counts those that reach theirs. `memory`: traffic of a call (each tensor read or written
// counted once), in percent of the copy (goal: 86%). `matmul`, `fp8`: TFLOP/s. Each product is
// chosen as a run does: cuBLASLt's first proposal and its best candidate, then the whole operator
// with what was chosen, as a share of that best candidate (goal: 98%); `unfused` where a plain
// product and kernels of our own were faster than its epilogue. `attention`: TFLOP/s by causal
// FLOPs, 2 N T H K forward, 5 N T H K backward (goals of our own, on an H200, for heads of 128 at
// 8k: 300 forward, 230 both ways). `beside`: a unit's reduction of Llama 8B, in 4 or 32 chunks, on
// a second stream of either priority, alone and beside the products of the backward of 8 layers;
// beside_tiny is for the simulated GPU. The models: whole training steps without a loader, enqueued
// one ahead as a run does; tokens/s, and model FLOPs (causal count) over the known peak; where the
// time of a step goes, from one step whose components are timed. `idle` is what those leave of that
// step (its launches are timed too, which holds a host up), and of the median of the other steps
// (goal: below 1%); `host` is the time to enqueue a step, over the step's: where that is less than
// 1, the GPU has work in front of it. `memory` is what was measured for the arena; below it stands
// what was taken from the GPU at each stage, by differences of what is free (goal: within 3%
// without libraries and graphs).
#include <cstdio>
#include <exception>

#include "core/gpu.h"
#include "tests/bench/gpu/bench.h"

namespace lockstep::bench {
namespace {

int run(std::vector<std::string_view> parts) {
  if (const auto gpus = gpu::devices(); gpus.count == 0) {
    std::printf("skipped: no GPU can be used: %s\n", gpus.why_not.c_str());
    return 77;
  }
  if (parts.empty()) {
    parts = {"memory", "matmul", "fp8", "attention"};
    for (const auto model : models())
      parts.push_back(model);
  }
  const auto p = gpu::properties(0);
  std::printf("%s, compute capability %d.%d, %d multiprocessors, %.1f GiB\n", p.name.c_str(),
              p.major, p.minor, p.multiprocessors, static_cast<double>(p.memory_bytes) / kGiB);
  for (const auto part : parts) {
    const auto all = models();
    if (std::find(all.begin(), all.end(), part) != all.end()) {
      steps(part);
      continue;
    }
    if (part == "beside" || part == "beside_tiny") {
      beside(part == "beside_tiny");
      continue;
    }
    Bench bench;
    if (part == "memory")
      memory(bench);
    else if (part == "copy")
      copy_rate(bench);
    else if (part == "matmul")
      matmul(bench);
    else if (part == "fp8")
      matmul_fp8(bench);
    else if (part == "attention")
      attention(bench);
    else
      LOCKSTEP_FAIL("no part ", part, "; the head of gpu_bench.cpp names them");
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  try {
    return lockstep::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}
