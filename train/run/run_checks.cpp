#include "train/run/run_checks.h"

#include <algorithm>
#include <utility>

#include "core/cpu.h"
#include "core/file.h"
#include "core/gpu.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/units.h"
#include "data/remote/remote.h"
#include "data/source.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "dist/job/rank_consistency.h"
#include "dist/topology_here.h"
#include "train/fp8_sizes.h"
#include "train/interop/model_source.h"
#include "train/interop/model_tokenizer.h"
#include "train/layout.h"
#include "train/run/batch_split.h"
#include "train/run/memory_budget.h"
#include "train/run/resume.h"
#include "train/step/numerics.h"

namespace lockstep {
namespace {

std::string name_of_device(const Stream& compute) {
  if (compute.is_cuda()) return gpu::properties(compute.device().index).name;
  return str(cpu_name(), " (", name(cpu_level()), ", ", compute.threads(),
             compute.threads() == 1 ? " thread)" : " threads)");
}

void check_held_out(const Config& config, const Sources& sources, const Dataset& held_out) {
  for (std::size_t s = 0; s < sources.count(); ++s)
    if (const auto why = difference_of_tokenizers(sources.dataset(s), held_out); !why.empty())
      throw ConfigError(str("data.validation: ", joined(config.data.validation), " and ",
                            sources.name(s), " use different tokenizers: ", why));
  for (std::size_t s = 0; s < sources.count(); ++s)
    if (held_out.fingerprint() == sources.dataset(s).fingerprint())
      log_warning("data.validation equals ",
                  sources.count() == 1 ? "data.train" : str("data.source ", sources.name(s)),
                  ": validation loss does not measure generalization");
}

// Logs how the documents fill rows.
void log_rows(const Sources& sources) {
  for (std::size_t s = 0; s < sources.count(); ++s) {
    const auto& rows = sources.rows(s);
    log_info("rows: ", with_commas(rows.documents()), " documents of ", sources.name(s), " fill ",
             with_commas(rows.count()), " rows (", name(sources.row_kind()), ") with ",
             three_digits(100 * rows.padding()), "% padding",
             rows.cut_documents() == 0 ? ""
                                       : str("; ", with_commas(rows.cut_documents()),
                                             " documents are longer than a row and are cut"));
  }
}

std::string fp8_counts(const Meter::Config& c) {
  if (c.fp8_flops_per_token == 0) return "";
  return str("; of them ", human_count(c.fp8_flops_per_token),
             " FLOP per token are in fp8 and count against its peak of ",
             human_count(c.fp8_peak_flops), " FLOP/s");
}

// Throws ConfigError if the GPU cannot compute precision.fp8. Warns if fp8 is no faster.
void check_fp8(const Config& c, const Stream& compute) {
  constexpr std::int64_t kWorthIt = 2048;
  const auto fp8 = c.precision.fp8;
  if (fp8 == Fp8Matmuls::off) return;
  if (!compute.is_cuda()) {
    log_warning("precision.fp8 on a CPU shows the numerical effect of fp8; it is slower than bf16");
    return;
  }
  const auto gpu = gpu::properties(compute.device().index);
  require_fp8(fp8, 10 * gpu.major + gpu.minor, gpu.name);
  if (c.model.width < kWorthIt)
    log_warning("precision.fp8: bf16 is usually as fast below a width of ", kWorthIt,
                " (model.width is ", c.model.width, ")");
}

// Logs a later phase. Throws ConfigError if the memory is too small for it.
void announce_phase(const RunPhase& phase, const Config& now, const MemoryRoom& room,
                    World& world) {
  Config c = phase.config;
  c.data.rows = now.data.rows;  // the same for the whole run
  c.train.attention = now.train.attention;
  const auto bytes = run_bytes(c, room, /*may_copy=*/true, world.rank());
  try {
    require_room(c, bytes, room);
  } catch (const ConfigError& error) {
    throw ConfigError(str("the phase after step ", phase.from_step, ": ", error.what()));
  }
  log_info("phase after step ", phase.from_step, ": ", c.train.batch_tokens,
           " tokens a step, sequences of ", c.train.sequence_length, " tokens, memory ",
           human_memory(static_cast<double>(bytes.training.device)),
           world.size() > 1 ? " per rank" : "");
}

}  // namespace

RunBytes announced_bytes(const Config& config, std::span<const RunPhase> later,
                         const Stream& compute, World& world, const Topology* topology,
                         const std::string& others) {
  const auto& m = config.model;
  log_info(name(m.family), ": ", human_count(static_cast<double>(parameter_count(m))),
           " parameters, ", m.layers, m.layers == 1 ? " layer, width " : " layers, width ", m.width,
           "; ", name(config.precision.compute),
           config.precision.fp8 == Fp8Matmuls::off ? "" : " and fp8", " on ",
           name_of_device(compute));
  check_fp8(config, compute);
  auto room = room_here(compute.device(), static_cast<int>(ranks_here(world).size()), others);
  if (topology != nullptr) room.domain_ranks = smallest_domain(*topology);
  auto bytes = run_bytes(config, room, /*may_copy=*/true, world.rank());
  require_room(config, bytes, room);
  // No rank allocates while another still checks the free memory. All ranks stage copies, or none.
  const std::string no_copies = "no copies";
  bool copies = bytes.copies == HostStaging::Copies::owned;
  const auto said = world.exchange(copies ? "" : no_copies);
  if (copies && std::find(said.begin(), said.end(), no_copies) != said.end()) {
    bytes = run_bytes(config, room, /*may_copy=*/false, world.rank());
    copies = false;
  }
  const auto words = [](std::int64_t n) { return human_memory(static_cast<double>(n)); };
  const bool on_gpu = compute.is_cuda();
  log_info("memory: ", words(bytes.training.device), world.size() > 1 ? " per rank" : "",
           " for weights, optimizer and activations",
           bytes.nccl > 0 ? str(", ", words(bytes.nccl), " for NCCL") : "",
           on_gpu   ? str(", ", words(bytes.sum().pinned), " of host memory")
           : copies ? str(", ", words(bytes.host_staging), " for a checkpoint staging copy")
                    : "",
           copies ? ""
                  : str("; not enough ", on_gpu ? "host " : "",
                        "memory for a checkpoint staging copy, so the optimizer step waits while "
                        "a checkpoint is written"));
  for (const auto& phase : later)
    announce_phase(phase, config, room, world);
  if (world.rank() == 0) {
    const auto more = keepable_blocks(config, room, bytes.copies);
    if (more.blocks > 0)
      log_info("layout.keep_gathered = ", more.blocks, " would also fit, in ",
               human_memory(static_cast<double>(more.bytes.device)),
               " per rank; a step then all-gathers ",
               human_memory(static_cast<double>(more.gathered_bytes)), " of weights instead of ",
               human_memory(static_cast<double>(more.gathered_bytes_before)));
  }
  return bytes;
}

void check_data(const Config& config, const Sources& sources, const Dataset* held_out,
                World& world) {
  const Dataset& training = sources.dataset(0);
  if (training.tokenizer_vocabulary() == ByteTokenizer::kVocabulary &&
      config.model.vocabulary > ByteTokenizer::kVocabulary)
    log_warning("model.vocabulary is ", config.model.vocabulary, ", but the data are bytes (",
                ByteTokenizer::kVocabulary, "): larger ids are unused");
  for (std::size_t s = 0; s < sources.count(); ++s) {
    const Dataset& dataset = sources.dataset(s);
    const auto ids = dataset.format().vocabulary;
    if (dataset.tokenizer_vocabulary() > 0 || ids <= config.model.vocabulary) continue;
    log_warning(sources.name(s), " is ", dataset.format().name, ", whose ids go up to ", ids - 1,
                ", but model.vocabulary is ", config.model.vocabulary,
                ": a larger id aborts the run");
    break;
  }
  Fields fields;
  for (std::size_t s = 0; s < sources.count(); ++s)
    fields.emplace_back(sources.count() == 1 ? "data.train" : str("data.source ", s + 1),
                        sources.dataset(s).fingerprint());
  if (held_out != nullptr) {
    check_held_out(config, sources, *held_out);
    fields.emplace_back("data.validation", held_out->fingerprint());
  }
  agree(world, "data (fingerprints)", fields);
}

void log_sources(const Config& config, const Sources& sources, std::int64_t end) {
  constexpr double kManyEpochs = 4;  // Muennighoff et al. 2023: up to four are as good as new text
  if (config.data.source.empty()) return;
  const Stretch& now = sources.history().back();
  const auto counters = sources.counters(end);
  double sum = 0;
  for (const auto& source : now.sources)
    sum += static_cast<double>(source.weight);
  for (std::size_t i = 0; i < counters.size(); ++i) {
    const auto& source = now.sources[i];
    for (std::size_t s = 0; s < sources.count(); ++s) {
      if (sources.dataset(s).fingerprint() != source.fingerprint) continue;
      const double epochs =
          static_cast<double>(counters[i]) / static_cast<double>(sources.rows(s).count());
      log_info("data.source ", sources.name(s), ": ",
               three_digits(100 * static_cast<double>(source.weight) / sum), "% of the samples, ",
               human_count(static_cast<double>(sources.dataset(s).tokens())), " tokens, ",
               three_digits(epochs), " epochs in this run");
      if (epochs > kManyEpochs)
        log_warning("data.source ", sources.name(s), " is repeated for ", three_digits(epochs),
                    " epochs; beyond ", kManyEpochs, " a model learns little more from it");
    }
  }
}

void log_step(const Config& config, const Loader& loader, int ranks, const Meter::Config& meter) {
  const bool on_gpu = meter.device.kind == Device::Kind::cuda;
  const auto flops = flops_per_token(config.model, config.train.sequence_length);
  const Sources& sources = loader.sources();
  log_info("data: ", sources.count() == 1 ? sources.name(0) : str("a mixture of ", sources.count()),
           ", ", human_count(static_cast<double>(sources.total_tokens())), " tokens; a step takes ",
           config.train.batch_tokens, " of them in ", loader.micro_steps(),
           loader.micro_steps() == 1 ? " micro-batch of " : " micro-batches of ",
           config.train.micro_batch, " x ", config.train.sequence_length,
           ranks > 1 ? str(" on each of ", data_ranks(config.layout), " data-parallel ranks") : "");
  if (const auto masked = masked_in_words(config); !masked.empty()) log_warning(masked);
  if (sources.row_kind() != RowKind::windows) log_rows(sources);
  log_info("MFU = tokens/s x ", human_count(flops.causal),
           " FLOP per token (6 per matrix weight, causal ", "attention; ",
           human_count(flops.square), " over the full square) / ", human_count(meter.peak_flops),
           " FLOP/s, the ", on_gpu ? "" : "measured ", "peak of ",
           ranks > 1 ? str(ranks, " ranks in ") : "", name(config.precision.compute),
           " multiply-adds", fp8_counts(meter),
           on_gpu ? ""
                  : "; other work on the host makes the measured peak too low, so it is measured "
                    "again at the first evaluation or save. MFU above 105% is shown as n/a");
  if (config.train.cuda_graphs == Config::CudaGraphs::on && !on_gpu)
    log_info("train.cuda_graphs has no effect on a CPU");
  if (config.train.offloads() && !on_gpu)
    log_info("train.offload_", config.train.offload_activations ? "activations" : "optimizer",
             " has no effect on a CPU");
}

}  // namespace lockstep
