#include "launch/checkpoint_fork.h"

#include <filesystem>

#include "checkpoint/directory.h"
#include "core/file.h"
#include "core/log.h"
#include "data/tokenizer/tokenizer_files.h"
#include "train/observe/metrics_log.h"
#include "train/run_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The step to fork. Throws ConfigError if the run has no checkpoint of it.
std::int64_t step_of(const CheckpointForkOptions& options, const fs::path& checkpoints) {
  const auto steps = checkpoint_steps(checkpoints);
  std::string there;
  for (const auto step : steps) {
    if (options.step == step) return step;
    there += str(there.empty() ? "" : ", ", step);
  }
  if (steps.empty()) throw DataError(str(checkpoints.string(), ": no checkpoint yet"));
  if (!options.step) return steps.back();
  throw ConfigError(str("--step: no checkpoint of step ", *options.step, " in ",
                        checkpoints.string(), "; choose one of steps ", there));
}

void copy_text_of(const fs::path& from, const fs::path& to) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 28;
  if (path_exists(from)) write_text(to, read_text(from, kMostBytes));
}

}  // namespace

int checkpoint_fork(const CheckpointForkOptions& options) {
  const fs::path from = options.run, to = options.out;
  const auto config = from / "config.toml", checkpoints = from / "checkpoints";
  if (!path_exists(config) || !directory_exists(checkpoints))
    throw DataError(str(options.run,
                        ": expected the directory of a run, with config.toml and "
                        "checkpoints/"));
  const auto step = step_of(options, checkpoints);
  const auto forked = load_config(config, options.settings);
  if (to.empty()) throw UsageError("--out: expected the directory of the new run");
  const auto inside =
      fs::absolute(to).lexically_normal().lexically_relative(fs::absolute(from).lexically_normal());
  if (*inside.begin() != "..")
    throw UsageError(
        str("--out \"", options.out, "\": expected a directory outside of ", options.run));
  if (path_exists(to) && !directory_entries(to).empty())
    throw UsageError(str("--out ", options.out, ": expected a new or empty directory"));
  const auto& log = forked.values.log;
  if (fs::path(log.prometheus_file).is_absolute() || log.metrics_port > 0)
    log_warning("both runs write ",
                log.metrics_port > 0 ? "log.metrics_port" : "log.prometheus_file",
                " of the configuration; set another one for the fork with --set");
  RunDirectory run(to);
  link_checkpoint(checkpoint_path(checkpoints, step), run.checkpoints());
  copy_metrics(from / "metrics.jsonl", run.metrics(), step);
  copy_text_of(from / "numerics.json", run.numerics());
  if (directory_exists(from / "tokenizer"))
    copy_tokenizer_files(tokenizer_files((from / "tokenizer").string()), run.tokenizer());
  write_text(run.config(), to_toml(forked));  // last: a run without it is incomplete
  run.keep();
  log_info("forked step ", step, " of ", options.run, " to ", options.out,
           "; continue with `lockstep train ", run.config().string(), "`");
  return 0;
}

}  // namespace lockstep
