#include "launch/train_verb.h"

#include <filesystem>

#include "train/trainer.h"

namespace lockstep {

Device device_of(const std::string& name) {
  if (name == "cpu") return {};
  if (name == "cuda")
    throw ConfigError("--device cuda: this build has no CUDA backend; use --device cpu");
  throw UsageError(str("--device ", name, ": expected cpu or cuda"));
}

int run_train(const TrainVerbOptions& options) {
  const auto config = load_config(options.config, options.settings);
  const auto name = std::filesystem::path(options.config).stem();
  return train({.config = config.values,
                .resolved_config = to_toml(config),
                .run = options.run.empty() ? std::filesystem::path("runs") / name
                                           : std::filesystem::path(options.run),
                .device = device_of(options.device),
                .allow_dataset_change = options.allow_dataset_change});
}

}  // namespace lockstep
