#include "launch/train_verb.h"

#include <chrono>
#include <filesystem>
#include <set>

#include "core/file.h"
#include "core/integer.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "dist/nccl_world.h"
#include "launch/config.h"
#include "launch/device.h"
#include "launch/plan/cluster_file.h"
#include "launch/plan/plan_watch.h"
#include "launch/ranks.h"
#include "launch/version.h"
#include "train/layout.h"
#include "train/run/trainer.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void check_threads(const ResolvedConfig& config) {
  if (config.values.train.threads <= most_threads()) return;
  throw ConfigError(str(config.origins.find("train.threads")->second, ": train.threads is ",
                        config.values.train.threads, ", expected at most ", most_threads(),
                        ", four for each processor that this process may use; 0 is one for each"));
}

// Where no directory is named: the run whose saved configuration the file is, or runs/ and the
// file's name.
fs::path default_run(const fs::path& config) {
  const auto directory = fs::absolute(config).parent_path();
  const bool saved =
      config.filename() == "config.toml" && directory_exists(directory / "checkpoints");
  return saved ? directory : fs::path("runs") / config.stem();
}

std::int64_t ranks_per_host(const Topology& topology) {
  std::set<std::string> hosts;
  for (const auto& place : topology.places)
    hosts.insert(place.host);
  return divide_up(std::ssize(topology.places), std::ssize(hosts));
}

int train_on(const TrainVerbOptions& options, World& launched, Clock::time_point began) {
  const auto config = load_config(options.config, options.settings, launched.size());
  check_threads(config);
  const auto device = device_of_rank(device_of(options.device), launched);
  Fields settings;
  const Json json = to_json(config);
  for (const auto& [key, value] : json.as_object())
    settings.emplace_back(key, value.dump());
  const auto across =
      options.allow_tensor_across_nodes ? TensorAcross::allowed : TensorAcross::refused;
  const auto ranks = place_ranks(launched, settings, mesh_of(config.values.layout, launched.size()),
                                 device, across);
  if (const auto axis = derived_axis_in_words(config, ranks_per_host(ranks.topology));
      !axis.empty())
    log_info(axis);
  const auto directory = options.run.empty() ? default_run(options.config) : fs::path(options.run);
  const auto watched = watch_ranks(*ranks.world, config.values.train.stall_seconds, directory);
  World& host = watched ? *watched : *ranks.world;
  return host.ends_all([&] {
    const bool by_nccl = device.kind == Device::Kind::cuda && host.size() > 1;
    const auto& cluster_file = config.values.plan.cluster;
    const auto cluster = host.rank() == 0 && !cluster_file.empty()
                             ? std::optional(load_cluster(cluster_file))
                             : std::nullopt;
    const auto nccl = by_nccl ? make_nccl_world(host, device) : nullptr;
    return train({.config = config.values,
                  .resolved_config = to_toml(config),
                  .settings = json,
                  .run = directory,
                  .device = device,
                  .make_observer =
                      [&](Run& run) { return std::make_unique<PlanWatch>(run, cluster, across); },
                  .allow_dataset_change = options.allow_dataset_change,
                  .version = version_and_commit(),
                  .verify_steps = options.verify_steps,
                  .trace_steps = options.trace_steps,
                  .began = began},
                 {.world = nccl ? *nccl : host, .topology = &ranks.topology});
  });
}

}  // namespace

int run_train(const TrainVerbOptions& options) {
  const auto began = Clock::now();
  const auto launched = meet_ranks(device_of(options.device));
  return launched->ends_all([&] { return train_on(options, *launched, began); });
}

}  // namespace lockstep
