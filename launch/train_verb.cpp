#include "launch/train_verb.h"

#include <filesystem>

#include "core/file.h"
#include "core/thread_pool.h"
#include "launch/device.h"
#include "train/trainer.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

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

}  // namespace

int run_train(const TrainVerbOptions& options) {
  const auto config = load_config(options.config, options.settings);
  check_threads(config);
  return train({.config = config.values,
                .resolved_config = to_toml(config),
                .settings = to_json(config),
                .run = options.run.empty() ? default_run(options.config) : fs::path(options.run),
                .device = device_of(options.device),
                .allow_dataset_change = options.allow_dataset_change});
}

}  // namespace lockstep
