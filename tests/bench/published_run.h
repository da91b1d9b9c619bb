// PublishedRun estimates the throughput of a run of another engine from its published model and
// layout. The operators are those that such a layer needs; none is recorded. It tests the time
// model of `plan` against published measurements (docs/planning.md).
#pragma once

#include <array>
#include <cstdint>

#include "tests/bench/published_engine.h"

namespace lockstep {

struct PublishedModel {
  std::int64_t layers = 0, width = 0, mlp = 0, heads = 0, kv_heads = 0, head_size = 0;
  std::int64_t vocabulary = 0, sequence = 0;  // tokens
  bool is_gated = true;                       // SwiGLU and rotary positions; else two products
  bool has_learned_positions = false;
  bool is_tied = false;

  double qkv_columns() const;
  double layer_parameters() const;
  // As most sources count: six a parameter but the table's, attention over the full square.
  double flops_a_token() const;
};

// The part of a layer's forward that is recomputed: attention (Megatron's selective); half of the
// products (torchtitan's); all but q, k and v and the last product (JAX); or all.
enum class PublishedRecompute : std::uint8_t { none, attention, half, save_qkv, full };
// State that data ranks shard: none; optimizer state, and perhaps gradients (ZeRO-1, ZeRO-2); or
// weights too (ZeRO-3).
enum class PublishedSharding : std::uint8_t { none, optimizer, full };
// Arithmetic of a layer's matmuls. fp8 has delayed scaling, fp8_current the scale of the tensor
// itself, fp8_rowwise a scale per row.
enum class PublishedPrecision : std::uint8_t { bf16, fp8, fp8_current, fp8_rowwise };

struct PublishedLayout {
  int gpus = 1, data = 1, tensor = 1, pipeline = 1, context = 1;
  int chunks = 1;                         // of a pipeline rank: interleaved stages
  int micro_batch = 1, global_batch = 1;  // sequences
  int shard_group = 0;                    // ranks that divide a weight; 0: data x context
  PublishedRecompute recompute = PublishedRecompute::none;
  PublishedSharding sharding = PublishedSharding::optimizer;
  PublishedPrecision precision = PublishedPrecision::bf16;
  bool has_async_tensor = false;   // collectives in pieces that overlap matmuls
  bool reads_shared_file = false;  // one rank after the other reads its batch, before each step

  int data_ranks() const { return data * context; }
  int group() const { return shard_group > 0 ? shard_group : data_ranks(); }
  int micro_batches() const;
};

// Parts of a step. `uneven`: the slowest stage minus the mean stage. `data`: exposed data-parallel
// communication, and the slowdown that it causes. `host`: waits of the GPU for the CPU. `spread`:
// the wait for the slowest GPU.
enum class RunPart : std::uint8_t {
  products,
  attention,
  memory,
  tensor,
  context,
  head,
  uneven,
  bubble,
  send,
  data,
  accumulate,
  optimizer,
  host,
  spread
};
inline constexpr std::size_t kRunParts = 14;
const char* name(RunPart part);

struct RunPrice {
  double tokens_per_second = 0;  // a GPU
  double step_seconds = 0;
  std::array<double, kRunParts> seconds{};
  double& operator[](RunPart part) { return seconds[static_cast<std::size_t>(part)]; }
  double operator[](RunPart part) const { return seconds[static_cast<std::size_t>(part)]; }
};

RunPrice price_run(const PublishedModel& model, const PublishedLayout& layout,
                   const Hardware& hardware, const PublishedEngine& engine,
                   const PublishedConstants& constants = {});

}  // namespace lockstep
