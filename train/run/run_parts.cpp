#include "train/run/run_parts.h"

#include <algorithm>
#include <iomanip>
#include <optional>
#include <unistd.h>

#include "core/gpu.h"
#include "core/log.h"
#include "core/system/hardware.h"
#include "core/thread_pool.h"
#include "core/units.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/topology_here.h"
#include "kernels/attention_cudnn.h"
#include "kernels/peak.h"
#include "train/fp8_sizes.h"
#include "train/layout.h"
#include "train/step/loss_sum.h"
#include "train/step/memory.h"
#include "train/step/run_state.h"
#include "train/step/volume.h"

namespace lockstep {

int threads_of(const Config& c) {
  return c.train.threads > 0 ? static_cast<int>(c.train.threads) : processors_allowed();
}

namespace {

// Larger models have kernels that are long enough to be launched one by one. A graph is of one
// stream, and offloading and several ranks have others.
bool has_cuda_graphs(const Config& c) {
  if (c.layout.ranks > 1) return false;
  constexpr std::int64_t kMostParameters = 1'000'000'000;
  if (c.train.cuda_graphs == Config::CudaGraphs::automatic)
    return parameter_count(c.model) <= kMostParameters && !c.train.offloads();
  return c.train.cuda_graphs == Config::CudaGraphs::on;
}

AttentionSizes attention_sizes(const Config& c) {
  return {.B = c.train.micro_batch,
          .T = c.train.sequence_length,
          .H = c.model.heads,
          .G = c.model.kv_heads,
          .K = c.model.head_size};
}

// What keeps any cuDNN on `device` from it; nothing: one may compute it.
std::string why_no_cudnn_attention(const Config& c, Device device) {
  if (device.kind == Device::Kind::cpu) return "the run is on the CPU";
  if (c.precision.compute != DType::bf16) return "precision.compute is not bf16";
  if (c.data.document_mask)
    return c.data.rows == RowKind::packed ? "documents are packed into rows (data.rows)"
                                          : "data.document_mask is set";
  return why_not_for_cudnn(attention_sizes(c));
}

}  // namespace

Config::Attention attention_of(const Config& c, Stream& compute) {
  using Attention = Config::Attention;
  if (c.train.attention == Attention::own) return Attention::own;
  auto why_not = why_no_cudnn_attention(c, compute.device());
  if (why_not.empty()) why_not = prepare_cudnn_attention(compute, attention_sizes(c));
  if (why_not.empty()) {
    log_info("attention by cuDNN ", cudnn_version());
    return Attention::cudnn;
  }
  if (c.train.attention == Attention::cudnn)
    throw ConfigError(
        str("train.attention is cudnn, but ", why_not, "; change that, or set it to auto or own"));
  if (compute.is_cuda()) log_info("attention by the own kernels, not cuDNN: ", why_not);
  return Attention::own;
}

Config::Attention planned_attention(const Config& c, Device device) {
  using Attention = Config::Attention;
  const bool is_own =
      c.train.attention == Attention::own || !why_no_cudnn_attention(c, device).empty();
  return is_own ? Attention::own : Attention::cudnn;
}

std::string in_words(Config::Attention settled) {
  return settled == Config::Attention::cudnn ? str("cuDNN ", cudnn_version()) : "own kernels";
}

TrainingConfig training_config(const Config& c) {
  return {.model = c.model,
          .recompute = c.train.recompute,
          .offload_activations = c.train.offload_activations,
          .offload_optimizer = c.train.offload_optimizer,
          .compute = c.precision.compute,
          .cudnn_attention = c.train.attention == Config::Attention::cudnn,
          .stochastic_rounding = c.precision.compute == DType::bf16 && !c.precision.master_weights,
          .fp8 = c.precision.fp8,
          .fp8_gradients = c.precision.fp8_gradients == Config::Fp8Gradients::e4m3
                               ? DType::fp8_e4m3
                               : DType::fp8_e5m2,
          .moments = c.precision.moments,
          .adamw = {.beta1 = static_cast<float>(c.optimizer.beta1),
                    .beta2 = static_cast<float>(c.optimizer.beta2),
                    .epsilon = static_cast<float>(c.optimizer.epsilon),
                    .weight_decay = static_cast<float>(c.optimizer.weight_decay),
                    .clip_norm = static_cast<float>(c.optimizer.clip_norm)},
          .z_loss = static_cast<float>(c.optimizer.z_loss),
          .sequence_length = c.train.sequence_length,
          .micro_batch_sequences = c.train.micro_batch,
          .global_batch_sequences = c.train.batch_tokens / c.train.sequence_length,
          .sample_tokens = c.log.sample_every_steps > 0 ? sample_length(c) : 0,
          .seed = c.train.seed,
          .cuda_graphs = has_cuda_graphs(c),
          .mesh = mesh_of(c.layout, static_cast<int>(c.layout.ranks)),
          .sharding = c.layout.sharding,
          .keep_gathered = c.layout.keep_gathered};
}

namespace {

std::string in_words(Device device, const Arenas::Bytes& bytes) {
  const auto words = [](std::int64_t n) { return human_memory(static_cast<double>(n)); };
  if (device.kind == Device::Kind::cpu) return words(bytes.device + bytes.pinned);
  return words(bytes.device) + " of the GPU's memory and " + words(bytes.pinned) + " of the host's";
}

// The keys that `config` has otherwise than `c`: "train.micro_batch = 1 and ...".
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

// tell(training), of one that measures.
template <class Tell>
std::int64_t told_by(const TrainingConfig& config, Device device, int threads, const Tell& tell) {
  Stream compute(device, "measure", Stream::Mode::measuring, threads);
  Arenas arenas = Arenas::measure(device);
  LoneWorld one_of_all(0, config.mesh.world());
  Training training(config, compute, arenas, make_comms(one_of_all, config.mesh));
  return tell(training);
}

// c: as it was configured, of which `config` differs in what training takes.
RunBytes measure_run(const Config& c, const TrainingConfig& config, Device device,
                     HostState::Copies copies = HostState::Copies::none) {
  const int threads = threads_of(c);
  const auto host_state = told_by(config, device, threads, [&](Training& training) {
    return HostState::bytes(state_slices(training.params(), training.optimizer()), device, copies);
  });
  return {.training = measure_training(config, device, threads),
          .batches = pinned_bytes(c, config.micro_batch_sequences),
          .host_state = host_state,
          .copies = copies};
}

// Of weights, which a rank receives in a step.
std::int64_t gathered_bytes(const TrainingConfig& config, Device device, int threads) {
  return told_by(config, device, threads, [](Training& training) {
    return sum_of(step_volume(step_shape(training)), Group::gathers, Collective::all_gather).bytes;
  });
}

// The mildest change of the configuration that fits: no weights are kept gathered; a smaller
// micro-batch computes the same, recomputing costs time, copies of a GPU's activations to the host
// cost more, and those of the optimizer's state help where the former do not; where it is the host
// that has too little, fewer copies do.
std::string what_would_fit(const Config& c, const MemoryRoom& room) {
  const Device device = room.device;
  TrainingConfig config = training_config(c);
  config.keep_gathered = 0;
  const auto fitting = [&](Recompute recompute) -> std::optional<std::string> {
    config.recompute = recompute;
    for (auto sequences = c.train.micro_batch; sequences >= 1; sequences /= 2) {
      if (!has_fp8_products(c, sequences)) continue;
      config.micro_batch_sequences = sequences;
      const auto bytes = measure_run(c, config, device).sum();
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
      // A link is too slow for all activations of other layers than those that keep one tensor.
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
  return str("make the model smaller: one sequence with train.recompute = \"block\"",
             more.empty() ? "" : " and ", more, " does not fit either");
}

}  // namespace

RunBytes run_bytes(const Config& c, const MemoryRoom& room, bool may_copy) {
  const auto config = training_config(c);
  if (may_copy) {
    const auto most = measure_run(c, config, room.device, HostState::Copies::owned);
    if (room.has(most.sum())) return most;
  }
  return measure_run(c, config, room.device);
}

void require_room(const Config& c, const RunBytes& bytes, const MemoryRoom& room) {
  if (!room.has(bytes.sum())) room.require(bytes.sum(), what_would_fit(c, room));
}

std::int64_t checkpoint_bytes(const Config& c) {
  const bool has_masters = c.precision.compute == DType::bf16 && c.precision.master_weights;
  const auto weight = bytes_per_element(has_masters ? DType::fp32 : c.precision.compute);
  return parameter_count(c.model) * (weight + 2 * bytes_per_element(c.precision.moments));
}

Keepable keepable_blocks(const Config& c, const MemoryRoom& room, HostState::Copies copies) {
  TrainingConfig config = training_config(c);
  if (config.mesh.size(Axis::shard) == 1 || config.sharding != Sharding::full) return {};
  const auto gathered = gathered_bytes(config, room.device, threads_of(c));
  Keepable found;
  auto most = config.model.layers;
  for (auto least = config.keep_gathered + 1; least <= most;) {
    config.keep_gathered = (least + most) / 2;
    const auto bytes = measure_run(c, config, room.device, copies).sum();
    // NCCL, and the system's cache of files, need some too.
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

void require_fp8(const Config& c, const Stream& compute) {
  constexpr std::int64_t kWorthIt = 2048;
  const auto fp8 = c.precision.fp8;
  if (fp8 == Fp8Products::off) return;
  if (!compute.is_cuda()) {
    log_warning(
        "precision.fp8 on a CPU shows what fp8 does to a training run; it is slower than "
        "bf16");
    return;
  }
  const auto gpu = gpu::properties(compute.device().index);
  require_fp8(fp8, 10 * gpu.major + gpu.minor, gpu.name);
  if (c.model.width < kWorthIt)
    log_warning("precision.fp8: below a width of ", kWorthIt, " (model.width is ", c.model.width,
                ") bf16 is usually as fast");
}

StepSplit step_split(const Config& c) {
  StepSplit split{.sequences = c.train.batch_tokens / c.train.sequence_length,
                  .data_ranks = c.layout.ranks / c.layout.tensor};
  split.micro_batches =
      Loader::micro_steps_of(split.sequences, c.train.micro_batch, split.data_ranks);
  split.computed = split.micro_batches * c.train.micro_batch * split.data_ranks;
  return split;
}

std::string masked_in_words(const Config& c) {
  const auto [sequences, ranks, micro_batches, computed] = step_split(c);
  if (computed == sequences) return "";
  const auto masked = computed - sequences;
  return str(
      "a step has ", sequences, sequences == 1 ? " sequence" : " sequences", ", but ", computed,
      " are computed, ", micro_batches, " x ", c.train.micro_batch,
      ranks == 1 ? std::string() : str(" on each of ", ranks, " ranks that read data"), ": ",
      masked,
      masked == 1 ? " is masked, which takes as long and teaches nothing; "
                  : " are masked, which take as long and teach nothing; ",
      sequences % ranks == 0
          ? str("a train.micro_batch that divides ", sequences / ranks, " would leave none")
          : str("a train.batch_tokens of a multiple of ", ranks,
                " sequences, or ranks whose number divides ", sequences, ", would leave none"));
}

Loader::Config train_loader(const Config& c, ShardFiles& files) {
  return {.sources = c.data.sources(),
          .seed = c.data.seed,
          .sequence_length = static_cast<int>(c.train.sequence_length),
          .global_batch_sequences = c.train.batch_tokens / c.train.sequence_length,
          .vocabulary = c.model.vocabulary,
          .document_mask = c.data.document_mask,
          .rows = c.data.rows,
          .shuffle_shards = c.data.shuffle_shards,
          .files = &files};
}

Loader::Config validation_loader(const Config& c, ShardFiles& files) {
  Loader::Config loader = train_loader(c, files);
  loader.sources = {{.paths = c.data.validation}};
  loader.shuffle_shards = 0;
  loader.global_batch_sequences =
      c.train.micro_batch * c.layout.ranks / c.layout.tensor;  // of every data rank
  loader.shuffle = false;
  loader.repeat = false;
  loader.most_samples = most_windows(c.eval.tokens, c.train.sequence_length);
  return loader;
}

namespace {

double peak_flops(Stream& compute, DType dtype) {
  if (compute.is_cuda()) return gpu_peak_flops(gpu::properties(compute.device().index).name, dtype);
  return measure_peak_flops(compute, dtype);
}

// Of the ranks on this machine, as the first of them says it; 0 of the others. Measured by one for
// all: where ranks share processors, they would wait for each other's measurements. Such ranks have
// a part of the peak of one that is alone.
double peak_flops_here(Stream& compute, DType dtype, World& world) {
  const auto here = ranks_here(world);
  if (compute.is_cuda()) return peak_flops(compute, dtype);  // each has its own
  if (here.front() != world.rank()) return 0;
  const auto ranks = static_cast<double>(here.size());
  const auto processors = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  return peak_flops(compute, dtype) * std::min(ranks, processors / compute.threads());
}

// Of all ranks together; 0 where the GPU of one is not in the table.
double peak_flops_of_all(Stream& compute, DType dtype, World& world) {
  double sum = 0;
  const auto here = str(std::setprecision(17), peak_flops_here(compute, dtype, world));
  for (const auto& said : world.exchange(here)) {
    const double peak = std::stod(said);
    if (peak == 0 && compute.is_cuda()) return 0;
    sum += peak;
  }
  return sum;
}

}  // namespace

Meter::Config meter_config(const Config& c, Stream& compute, World& world) {
  auto meter = meter_config(c, compute.device(),
                            [&](DType dtype) { return peak_flops_of_all(compute, dtype, world); });
  meter.limit_bytes = all_memory_bytes(compute.device());
  return meter;
}

double measured_peak_flops(const Config& c, Stream& compute, World& world) {
  return peak_flops_of_all(compute, c.precision.compute, world);
}

Meter::Config meter_config(const Config& c, Device device,
                           FunctionRef<double(DType dtype)> peak_flops) {
  const auto flops = flops_per_token(c.model, c.train.sequence_length);
  // A CPU computes fp8 in the compute type.
  const bool fp8 = c.precision.fp8 != Fp8Products::off && device.kind == Device::Kind::cuda;
  return {.steps = c.train.steps,
          .step_tokens = c.train.batch_tokens,
          .flops_per_token = flops.causal,
          .flops_per_token_square = flops.square,
          .peak_flops = peak_flops(c.precision.compute),
          .fp8_flops_per_token = fp8 ? flops.layer_products : 0,
          .fp8_peak_flops = fp8 ? peak_flops(DType::fp8_e4m3) : 0,
          .device = device};
}

std::int64_t sample_length(const Config& c) {
  // The document token, and of each byte at most three, which a normal form may make of one.
  const auto each = c.model.vocabulary == ByteTokenizer::kVocabulary ? 1 : 3;
  const auto prompt = 1 + each * std::ssize(c.log.sample_prompt);
  return std::min(prompt + c.log.sample_tokens, c.model.max_positions);
}

}  // namespace lockstep
