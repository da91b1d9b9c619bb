#include "train/run/restore.h"

#include <optional>

#include "core/file.h"
#include "core/log.h"
#include "train/interop/model_source.h"
#include "train/interop/model_tokenizer.h"
#include "train/run/replay.h"
#include "train/run/run_checks.h"
#include "train/run/start.h"
#include "train/step/weight_hash.h"

namespace lockstep {
namespace {

// Chooses the matmul algorithms that the checkpoint records, else those of an earlier start.
void choose_matmul_algorithms(Run& run, const std::optional<Json>& about) {
  if (!run.host.stream.is_cuda()) return;
  const auto file = run.host.directory.numerics();
  const auto where = about ? checkpoint_path(run.host.directory.checkpoints(), run.step()) : file;
  const auto recorded = [&] {
    if (about) return about->at("numerics");
    return path_exists(file) ? read_numerics(file) : Json();
  };
  run.compute.numerics =
      choose_numerics(run.compute.training, run.host.stream, recorded, where.string());
  Json json;
  add_to(json, *run.compute.numerics);
  if (run.host.is_first()) write_text(file, json.dump(2) + "\n");
}

// Warns once if the initial weights were trained with another tokenizer than that of the data.
void warn_of_other_tokens(const Run& run) {
  const auto& from = run.config.train.init_from;
  if (from.empty() || !run.host.is_first()) return;
  const auto source = find_model(from);
  const Sources& sources = run.data.loader.sources();
  for (std::size_t s = 0; s < sources.count(); ++s)
    if (warn_of_other_tokenizer(sources.dataset(s), source)) return;
}

// Starts from `weights`; if it is empty, from random weights.
void initialize(Run& run, const std::filesystem::path& weights) {
  run.compute.training.initialize();
  if (!weights.empty())
    run.position.progress.started_from = std::filesystem::absolute(weights).lexically_normal();
  if (weights.empty()) {
    log_info("starting from random weights, seed ", run.config.train.seed,
             "; the run directory is ", run.host.directory.path().string());
    return;
  }
  const auto source = find_model(weights);
  check_same_model(source.model, run.config.model, str(weights.string(), " holds"));
  load_weights(source, run.compute.training.params(), run.host.stream);
  log_info("starting from the weights in ", source.path.string(), "; the run directory is ",
           run.host.directory.path().string());
}

// Makes the loaded state the run's state, and checks the hash of its weights.
void take_loaded(Run& run, const Json& about) {
  run.compute.state.send();
  run.compute.training.params().refresh_weights(run.host.stream);
  const Json* saved = about.find("weight_hash");
  if (saved == nullptr) return;  // older checkpoints lack it
  run.compute.training.weight_hash().enqueue(run.host.stream);
  const auto here = hex_of(run.read_weight_hash(about.at("step").as_integer()));
  if (here != saved->as_string())
    throw TransientError(str("the weights of step ", about.at("step").as_integer(),
                             " have the hash ", here, " in memory, but ", saved->as_string(),
                             " when they were saved, although all bytes of the checkpoint are as "
                             "written: a memory, CPU or GPU fault, now or during the save. Rerun "
                             "the same command to retry. If the error repeats on another host, "
                             "move step ",
                             about.at("step").as_integer(), " away to load an older checkpoint"));
}

// The data history with which the run recorded its last steps. Steps after the newest checkpoint,
// whose metadata is `about`, are of the run's last start.
DataHistory recorded_history(Run& run, const Json& about) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 28;
  const auto file = run.host.directory.data();
  const auto mine = run.host.is_first() && path_exists(file) ? read_text(file, kMostBytes) : "";
  const auto text = run.host.world.exchange(mine).front();
  auto of_checkpoint = history_in(about.at("data"));
  if (text.empty()) return of_checkpoint;
  auto of_start = history_in(Json::parse(text, file.string()));
  return agree_before(run.position.progress.first_sample, of_checkpoint, of_start) ? of_start
                                                                                   : of_checkpoint;
}

// Throws ConfigError if steps of the samples [first, end) cannot be recomputed from the current
// data.
void require_sources(const Run& run, const DataHistory& history, std::int64_t first,
                     std::int64_t end) {
  const Sources& sources = run.data.loader.sources();
  const auto length = run.config.train.sequence_length;
  for (std::size_t i = 0; i < history.size() && history[i].first_sample < end; ++i) {
    if (i + 1 < history.size() && history[i + 1].first_sample <= first) continue;
    if (history[i].length != length)
      throw ConfigError(str("--verify-resume: the steps were computed from rows of ",
                            history[i].length, " tokens, but train.sequence_length is ", length,
                            ": verify with the old value first, then change it"));
    for (const auto& source : history[i].sources) {
      bool is_there = false;
      for (std::size_t s = 0; s < sources.count(); ++s)
        is_there = is_there || sources.dataset(s).fingerprint() == source.fingerprint;
      if (!is_there)
        throw ConfigError(str("--verify-resume: expected dataset ", source.name, " (fingerprint ",
                              source.fingerprint,
                              "), from which the steps were computed; configure it to verify "
                              "first, then change the data"));
    }
  }
}

// Loads the checkpoint of `step`.
void load(Run& run, std::int64_t step) {
  run.compute.state.prepare_to_read();
  const Json about = run.checkpoints.load(step);
  take_loaded(run, about);
  run.position.progress = progress_in(about);
}

// Recomputes recorded steps from an earlier checkpoint, and then loads the newest state again.
void replay(Run& run, StepRunner& steps, const Json& newest) {
  const RunProgress now = run.position.progress;
  const auto history = run.data.loader.sources().history();
  const auto recorded = recorded_history(run, newest);
  run.data.loader.go_on(recorded);

  auto comparison = agreed_replay(run.host.directory, run.host.options.phase_begin,
                                  run.host.options.verify_steps, run.host.world);
  load(run, comparison.from());
  run.position.progress.amendments = now.amendments;
  const auto first = run.position.progress.first_sample;
  require_sources(run, recorded, first,
                  first + comparison.steps() * run.data.loader.step_samples());
  while (run.position.stop == 0 && !comparison.is_done())
    comparison.compare(steps.compute());

  run.data.loader.go_on(history);
  load(run, now.step);
  run.position.progress = now;
}

}  // namespace

void restore(Run& run, StepRunner& steps) {
  log_step(run.config, run.data.loader, run.host.world.size(), run.compute.meter.config());
  if (const auto imported = imported_weights(run.host.directory.checkpoints(), run.host.world);
      imported && !run.checkpoints.has_after(0)) {
    check_same_start(imported->string(), run.config);
    amend_fresh_run(run);
    choose_matmul_algorithms(run, std::nullopt);
    log_sources(run.config, run.data.loader.sources(), run.end_sample());
    return initialize(run, *imported);
  }
  const auto about = load_start(run);
  log_sources(run.config, run.data.loader.sources(), run.end_sample());
  if (run.step() < run.steps() || run.host.options.verify_steps > 0)
    choose_matmul_algorithms(run, about);
  if (!about && run.host.options.verify_steps > 0)
    throw ConfigError(
        str("--verify-resume: there is no checkpoint in ", run.host.directory.path().string()));
  if (!about) {
    warn_of_other_tokens(run);
    return initialize(run, run.config.train.init_from);
  }
  run.position.saved_step = run.step();
  take_loaded(run, *about);
  const auto good = run.position.progress.good_step;
  run.checkpoints.copy_resumed(run.step(), {good < 0 ? run.step() : good, run.step()},
                               /*is_last=*/run.step() >= run.steps());
  if (run.step() < run.steps())
    log_info("resuming from step ", run.step(), " of ", run.steps(), " in ",
             run.host.directory.path().string());
  if (run.step() < run.steps()) log_changes(*about, run.facts());
  if (run.host.options.verify_steps > 0) replay(run, steps, *about);
}

}  // namespace lockstep
