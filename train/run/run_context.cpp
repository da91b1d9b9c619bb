#include "train/run/run_context.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/gpu.h"
#include "core/system/machine.h"
#include "dist/job/agent_socket.h"
#include "dist/job/rank_consistency.h"
#include "train/run/attention_choice.h"
#include "train/run/peak_flops.h"
#include "train/step/state_slices.h"
#include "train/step/weight_hash.h"

namespace lockstep {
namespace {

// Rank 0 makes the directory and claims an epoch; then the other ranks find it.
RunDirectory open_run(const std::filesystem::path& path, World& world) {
  std::optional<RunDirectory> made;
  if (world.rank() == 0) {
    made.emplace(path);
    made->claim_epoch();
    std::error_code unknown;  // leftovers of an earlier start
    std::filesystem::remove_all(path / "ended", unknown);
  }
  const auto epoch = world.exchange(made ? str(made->epoch()->number()) : "").front();
  if (!made) {
    made.emplace(path, /*takes_lock=*/false);
    made->join_epoch(std::stoll(epoch));
  }
  return std::move(*made);
}

bool any_says(World& world, bool mine) {
  const auto said = world.exchange(mine ? "yes" : "no");
  return std::find(said.begin(), said.end(), "yes") != said.end();
}

// Returns `files`. Throws ConfigError if the cache of this host is too small for the configuration.
RunShards& with_room(RunShards& files, const Config& config) {
  std::vector<Loader::Config> loaders{train_loader(config, files.files())};
  if (!config.data.validation.empty()) loaders.push_back(validation_loader(config, files.files()));
  files.need_room(loaders);
  return files;
}

// Held-out data have the kind of rows of the training data.
std::optional<Sources> open_held_out(const Config& config, RowKind rows, RunShards& files) {
  if (config.data.validation.empty()) return std::nullopt;
  return Sources(Loader::sources_of(validation_loader(with_rows(config, rows), files.files())));
}

std::optional<Loader> held_out_loader(const RunConfig& config, std::optional<Sources> sources,
                                      const DataPlace& place, Arena& pinned, ShardFiles& files) {
  if (!sources) return std::nullopt;
  return std::optional<Loader>(std::in_place, validation_loader(config, files), std::move(*sources),
                               static_cast<int>(config.train.micro_batch), place.rank, place.ranks,
                               pinned);
}

DataPlace place_of(const RunConfig& config, World& world) {
  return data_place(mesh_of(config.layout, world.size()), world.rank());
}

}  // namespace

RunHost::RunHost(const TrainOptions& given, const RunRanks& ranks)
    : options(given),
      world(ranks.world),
      topology(ranks.topology),
      signals(ranks.world.rank() == 0),
      directory(open_run(options.run, world)),
      log(is_first() ? RunLog(world, directory, options.config) : RunLog()),
      gpu(options.device.kind == Device::Kind::cuda
              ? std::optional<GpuTelemetry>(std::in_place, options.device)
              : std::nullopt),
      stream(options.device, "compute", Stream::Mode::immediate, threads_of(options.config)) {}

std::vector<std::string> RunHost::hosts() const {
  if (topology == nullptr) return {host_name()};
  std::vector<std::string> hosts;
  std::set<std::string> seen;
  for (const auto& rank : topology->places)
    if (seen.insert(rank.host).second) hosts.push_back(rank.host);
  return hosts;
}

std::string RunHost::device_name() const {
  return stream.is_cuda() ? gpu::properties(stream.device().index).name : "cpu";
}

int RunHost::agreed(int mine) {
  int most = 0;
  for (const auto& said : world.exchange(std::to_string(mine)))
    most = std::max(most, std::stoi(said));
  return most;
}

RunSources::RunSources(const Config& config, RunShards& files)
    : training(Loader::sources_of(train_loader(config, with_room(files, config).files()))),
      held_out(open_held_out(config, training.row_kind(), files)) {}

RunData::RunData(const RunConfig& config, RunSources sources, const RunBytes& bytes, RunHost& host,
                 RunShards& all_files)
    : files(all_files),
      pinned(host.options.device, Arena::Memory::pinned_host, bytes.batches),
      loader(train_loader(config, files.files()), std::move(sources.training),
             static_cast<int>(config.train.micro_batch), place_of(config, host.world).rank,
             place_of(config, host.world).ranks, pinned),
      validation(held_out_loader(config, std::move(sources.held_out), place_of(config, host.world),
                                 pinned, files.files())),
      tokenizer(run_tokenizer(config, loader.sources(), host.directory, host.world, files.files())),
      prompt(sample_prompt(config, tokenizer)) {}

RunCompute::RunCompute(const RunConfig& config, const RunBytes& bytes, RunHost& host)
    : arenas(host.options.device, bytes.training, host.world.allocate(bytes.training.device)),
      training(training_config(config), host.stream, arenas,
               make_comms(host.world, mesh_of(config.layout, host.world.size()), host.topology,
                          config.layout.reduce)),
      state(state_slices(training.params(), training.optimizer()), host.stream, bytes.copies),
      shares_state(any_says(host.world, state.shares_state())),
      meter(meter_config(config, host.stream, host.world, host.options.later_phases)) {}

std::int64_t Run::end_step() const {
  const auto& later = host.options.later_phases;
  return later.empty() ? steps() : std::min(steps(), later.front().from_step);
}

std::int64_t Run::end_sample() const {
  return position.progress.first_sample +
         std::max<std::int64_t>(steps() - step(), 0) * data.loader.step_samples();
}

RunFacts Run::facts() const {
  return {.config = config,
          .settings = host.options.settings,
          .history = data.loader.sources().history(),
          .threads = host.stream.threads(),
          .device = host.device_name(),
          .attention = in_words(config.train.attention),
          .numerics = compute.numerics ? &*compute.numerics : nullptr};
}

std::uint64_t Run::read_weight_hash(std::int64_t step) {
  const auto result = compute.training.weight_hash().read();
  if (result.unequal.empty()) return result.hash;
  std::string groups;
  RankReport report;
  // If two groups have one size, either may be wrong.
  const bool has_majority =
      result.unequal.size() > 1 && result.unequal[0].size() > result.unequal[1].size();
  for (const auto& ranks : result.unequal) {
    if (has_majority && &ranks != &result.unequal.front() && host.topology != nullptr)
      for (const int rank : ranks)
        report.faulty.push_back(host.topology->places[static_cast<std::size_t>(rank)].host);
    groups += str(groups.empty() ? "" : "; ", rank_list(ranks));
    if (host.topology != nullptr) groups += str(" on ", hosts_in_words(*host.topology, ranks));
  }
  report_to_agent(report);
  throw TransientError(str(
      "after step ", step, ", replicated weights differ between ranks. Matching groups: ", groups,
      ". Likely a memory, CPU or GPU fault in the smaller group; rerun the same command to ",
      position.saved_step < 0
          ? "start from the beginning"
          : str("resume from step ", position.saved_step, ", whose weights were compared")));
}

}  // namespace lockstep
