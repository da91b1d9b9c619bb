#include "train/run/memory_budget.h"

#include <algorithm>
#include <optional>

#include "core/units.h"
#include "data/loader.h"
#include "dist/nccl_memory.h"
#include "train/fp8_sizes.h"
#include "train/layout.h"
#include "train/run/run_config.h"
#include "train/step/state_slices.h"
#include "train/step/volume.h"

namespace lockstep {
namespace {

std::string in_words(Device device, const Arenas::Bytes& bytes) {
  const auto words = [](std::int64_t n) { return human_memory(static_cast<double>(n)); };
  if (device.kind == Device::Kind::cpu) return words(bytes.device + bytes.pinned);
  return words(bytes.device) + " of GPU memory and " + words(bytes.pinned) + " of host memory";
}

// The keys in which `config` differs from `c`: "train.micro_batch = 1 and ...".
std::string changes(const TrainingConfig& config, const Config& c) {
  std::string text;
  const auto say = [&](bool differs, const std::string& setting) {
    if (differs) text += (text.empty() ? "" : " and ") + setting;
  };
  const auto say_switch = [&](const char* key, bool is, bool was) {
    say(is != was, str(key, is ? " = true" : " = false"));
  };
  say(config.micro_batch_sequences != c.train.micro_batch,
      str("train.micro_batch = ", config.micro_batch_sequences));
  say(config.recompute != c.train.recompute,
      str("train.recompute = \"", name(config.recompute), "\""));
  say_switch("train.offload_activations", config.offload_activations, c.train.offload_activations);
  say_switch("train.offload_optimizer", config.offload_optimizer, c.train.offload_optimizer);
  say(c.train.cuda_graphs == Config::CudaGraphs::on && !config.cuda_graphs,
      "train.cuda_graphs = \"auto\"");
  say(config.keep_gathered != c.layout.keep_gathered, "layout.keep_gathered = 0");
  return text;
}

// The buffers of both loaders.
std::int64_t pinned_bytes(const Config& c, std::int64_t micro_batch) {
  const auto bytes = Loader::pinned_bytes(static_cast<int>(micro_batch),
                                          static_cast<int>(c.train.sequence_length));
  return c.data.validation.empty() ? bytes : 2 * bytes;
}

// Returns tell(training) for a Training of rank `rank` on a measuring stream.
template <class Tell>
std::int64_t told_by(const TrainingConfig& config, Device device, int threads, int rank,
                     const Tell& tell) {
  Stream compute(device, "measure", Stream::Mode::measuring, threads);
  Arenas arenas = Arenas::measure(device);
  LoneWorld one_of_all(rank, config.mesh.world());
  Training training(config, compute, arenas,
                    make_comms(one_of_all, config.mesh, nullptr, config.reduce));
  return tell(training);
}

// Measures a run with `config`, a variant of the configuration `c` that changes the memory.
RunBytes measure_run(const Config& c, const TrainingConfig& config, const MemoryRoom& room,
                     int rank, HostStaging::Copies copies = HostStaging::Copies::none) {
  const Device device = room.device;
  const bool has_nccl = device.kind == Device::Kind::cuda;
  const int threads = threads_of(c);
  const auto host_staging = told_by(config, device, threads, rank, [&](Training& training) {
    return HostStaging::bytes(state_slices(training.params(), training.optimizer()), device,
                              copies);
  });
  return {.training = measure_training(config, device, threads, rank),
          .nccl = has_nccl ? nccl_memory_bytes(config.mesh, room.domain_ranks, config.reduce) : 0,
          .batches = pinned_bytes(c, config.micro_batch_sequences),
          .host_staging = host_staging,
          .copies = copies};
}

// Bytes of weights that a rank receives in the all-gathers of a step.
std::int64_t gathered_bytes(const TrainingConfig& config, Device device, int threads) {
  return told_by(config, device, threads, 0, [](Training& training) {
    return sum_of(step_volume(step_shape(training)), Group::gathers, Collective::all_gather).bytes;
  });
}

// Describes the mildest change of the configuration that fits. It tries, in this order:
// - keep no weights gathered
// - a smaller micro-batch, which computes the same
// - activation checkpointing (recompute), which costs time
// - offloading a GPU's activations to the host, which costs more; then its optimizer state, then
// both
// - less offloading, if host memory is too small
std::string what_would_fit(const Config& c, const MemoryRoom& room) {
  const Device device = room.device;
  TrainingConfig config = training_config(c);
  config.keep_gathered = 0;
  const auto fitting = [&](Recompute recompute) -> std::optional<std::string> {
    config.recompute = recompute;
    for (auto sequences = c.train.micro_batch; sequences >= 1; sequences /= 2) {
      if (!has_fp8_matmuls(c, sequences)) continue;
      config.micro_batch_sequences = sequences;
      const auto bytes = measure_run(c, config, room, 0).sum();
      if (room.has(bytes))
        return str("with ", changes(config, c), " it needs ", in_words(device, bytes));
    }
    return std::nullopt;
  };
  struct Offload {
    bool activations, optimizer;
  };
  constexpr Offload kNone{false, false}, kActivations{true, false}, kOptimizer{false, true},
      kBoth{true, true};
  const auto with = [&](const Offload& offload) -> std::optional<std::string> {
    config.offload_activations = offload.activations;
    config.offload_optimizer = offload.optimizer;
    config.cuda_graphs = config.cuda_graphs && !offload.activations && !offload.optimizer;
    for (const auto recompute : {Recompute::none, Recompute::cheap, Recompute::block}) {
      // The link is too slow for all activations, unless each layer keeps only one tensor.
      const bool is_new = offload.activations && !c.train.offload_activations;
      if (recompute < c.train.recompute || (is_new && recompute != Recompute::block)) continue;
      if (auto answer = fitting(recompute)) return answer;
    }
    return std::nullopt;
  };
  const bool on_gpu = device.kind == Device::Kind::cuda;
  const Offload own{c.train.offload_activations, c.train.offload_optimizer};
  for (const auto& more : {kNone, kActivations, kOptimizer, kBoth}) {
    if (!on_gpu && (more.activations || more.optimizer)) continue;
    const Offload all{own.activations || more.activations, own.optimizer || more.optimizer};
    if (auto answer = with(all)) return *answer;
  }
  for (const auto& fewer : {kOptimizer, kActivations, kNone}) {
    const bool is_fewer = fewer.activations < own.activations || fewer.optimizer < own.optimizer;
    if (!on_gpu || !is_fewer) continue;
    if (auto answer =
            with({own.activations && fewer.activations, own.optimizer && fewer.optimizer}))
      return *answer;
  }
  config.micro_batch_sequences = c.train.micro_batch;
  config.recompute = c.train.recompute;
  const auto more = changes(config, c);
  return str("use a smaller model: even one sequence with train.recompute = \"block\"",
             more.empty() ? "" : " and ", more, " does not fit");
}

}  // namespace

RunBytes run_bytes(const Config& c, const MemoryRoom& room, bool may_copy, int rank) {
  const auto config = training_config(c);
  if (may_copy) {
    const auto most = measure_run(c, config, room, rank, HostStaging::Copies::owned);
    if (room.has(most.sum())) return most;
  }
  return measure_run(c, config, room, rank);
}

void require_room(const Config& c, const RunBytes& bytes, const MemoryRoom& room) {
  if (!room.has(bytes.sum())) room.require(bytes.sum(), what_would_fit(c, room));
}

std::int64_t checkpoint_bytes(const Config& c) {
  const bool has_masters = c.precision.compute == DType::bf16 && c.precision.master_weights;
  const auto weight = bytes_per_element(has_masters ? DType::fp32 : c.precision.compute);
  return parameter_count(c.model) * (weight + 2 * bytes_per_element(c.precision.moments));
}

Keepable keepable_blocks(const Config& c, const MemoryRoom& room, HostStaging::Copies copies) {
  TrainingConfig config = training_config(c);
  if (config.mesh.size(Axis::shard) == 1 || !divides_weights(config.sharding)) return {};
  const auto gathered = gathered_bytes(config, room.device, threads_of(c));
  Keepable found;
  auto most = config.model.layers;
  for (auto least = config.keep_gathered + 1; least <= most;) {
    config.keep_gathered = (least + most) / 2;
    const auto bytes = measure_run(c, config, room, 0, copies).sum();
    // Leaves memory for the page cache.
    if (room.has({bytes.device + bytes.device / 16, bytes.pinned})) {
      found = {config.keep_gathered, bytes, gathered_bytes(config, room.device, threads_of(c)),
               gathered};
      least = config.keep_gathered + 1;
    } else {
      most = config.keep_gathered - 1;
    }
  }
  return found.gathered_bytes < found.gathered_bytes_before ? found : Keepable{};
}

}  // namespace lockstep
