#include "train/run/start.h"

#include <optional>

#include "core/file.h"
#include "core/log.h"
#include "train/interop/model_source.h"
#include "train/interop/model_tokenizer.h"
#include "train/step/weight_hash.h"

namespace lockstep {
namespace {

// As the run computed them up to the checkpoint; without one, as an earlier start left it.
void choose_products(Run& run, const std::optional<Json>& about) {
  if (!run.compute.is_cuda()) return;
  const auto file = run.directory.numerics();
  const auto where = about ? checkpoint_path(run.directory.checkpoints(), run.step()) : file;
  const auto recorded = [&] {
    if (about) return about->at("numerics");
    return path_exists(file) ? read_numerics(file) : Json();
  };
  run.numerics = choose_numerics(run.training, run.compute, recorded, where.string());
  Json json;
  add_to(json, *run.numerics);
  if (run.is_first()) write_text(file, json.dump(2) + "\n");
}

// Once, where the weights that a run starts from know other tokens than its data have.
void warn_of_other_tokens(const Run& run) {
  const auto& from = run.config.train.init_from;
  if (from.empty() || !run.is_first()) return;
  const auto source = find_model(from);
  const Sources& sources = run.loader.sources();
  for (std::size_t s = 0; s < sources.count(); ++s)
    if (warn_of_other_tokenizer(sources.dataset(s), source)) return;
}

// From these; empty: from random ones.
void initialize(Run& run, const std::filesystem::path& weights) {
  run.training.initialize();
  if (weights.empty()) {
    log_info("starting from random weights, seed ", run.config.train.seed, "; the run is kept in ",
             run.directory.path().string());
    return;
  }
  const auto source = find_model(weights);
  check_same_model(source.model, run.config.model, str(weights.string(), " holds"));
  load_weights(source, run.training.params(), run.compute);
  log_info("starting from the weights in ", source.path.string(), "; the run is kept in ",
           run.directory.path().string());
}

// The state that was loaded is the run's.
void take_loaded(Run& run, const Json& about) {
  run.state.send();
  run.training.params().refresh_weights(run.compute);
  const Json* saved = about.find("weight_hash");
  if (saved == nullptr) return;  // not in checkpoints of before
  run.training.weight_hash().enqueue(run.compute);
  const auto here = hex_of(run.read_weight_hash(about.at("step").as_integer()));
  if (here != saved->as_string())
    throw TransientError(str("the weights of step ", about.at("step").as_integer(),
                             " have the hash ", here, " in memory, but ", saved->as_string(),
                             " when they were saved, though all bytes of the checkpoint are as "
                             "written: memory or a processor errs, here or there. The same command "
                             "tries again; where it says so on another machine too, move step ",
                             about.at("step").as_integer(), " away, and an older one is taken"));
}

// What the run read when it recorded its last steps: those behind the newest checkpoint, of which
// `about` tells, are of its last start.
DataHistory recorded_history(Run& run, const Json& about) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 28;
  const auto file = run.directory.data();
  const auto mine = run.is_first() && path_exists(file) ? read_text(file, kMostBytes) : "";
  const auto text = run.world.exchange(mine).front();
  auto of_checkpoint = history_in(about.at("data"));
  if (text.empty()) return of_checkpoint;
  auto of_start = history_in(Json::parse(text, file.string()));
  return agree_before(run.progress.first_sample, of_checkpoint, of_start) ? of_start
                                                                          : of_checkpoint;
}

// To compute steps of samples [first, end) again.
void require_sources(const Run& run, const DataHistory& history, std::int64_t first,
                     std::int64_t end) {
  const Sources& sources = run.loader.sources();
  const auto length = run.config.train.sequence_length;
  for (std::size_t i = 0; i < history.size() && history[i].first_sample < end; ++i) {
    if (i + 1 < history.size() && history[i + 1].first_sample <= first) continue;
    if (history[i].length != length)
      throw ConfigError(str("--verify-resume: the steps were computed from rows of ",
                            history[i].length, " tokens, but train.sequence_length is ", length,
                            ": verify with the length that the run had, then change it"));
    for (const auto& source : history[i].sources) {
      bool is_there = false;
      for (std::size_t s = 0; s < sources.count(); ++s)
        is_there = is_there || sources.dataset(s).fingerprint() == source.fingerprint;
      if (!is_there)
        throw ConfigError(str("--verify-resume: the steps were computed from ", source.name,
                              " (fingerprint ", source.fingerprint,
                              ") too, which the configuration does not name: verify with the data "
                              "that the run had, then change them"));
    }
  }
}

// Steps that the run recorded, from a checkpoint before them; then all is as it was.
void replay(Run& run, const Json& newest, FunctionRef<RecordedStep()> compute_step) {
  const RunProgress now = run.progress;
  const auto history = run.loader.sources().history();
  const auto recorded = recorded_history(run, newest);
  run.loader.go_on(recorded);
  const auto load = [&](std::int64_t step) {
    run.state.prepare_to_read();
    const Json about = run.checkpoints.load(step);
    take_loaded(run, about);
    run.progress = progress_in(about);
  };
  const auto begin = [&](std::int64_t step, std::int64_t steps) {
    load(step);
    const auto first = run.progress.first_sample;
    require_sources(run, recorded, first, first + steps * run.loader.step_samples());
  };
  const auto compute = [&]() -> std::optional<RecordedStep> {
    if (run.stop != 0) return std::nullopt;
    return compute_step();
  };
  replay_steps(run.directory, run.options.verify_steps, run.world, begin, compute);
  run.loader.go_on(history);
  load(now.step);
  run.progress = now;
}

}  // namespace

void start(Run& run, FunctionRef<RecordedStep()> compute_step) {
  log_step(run.config, run.loader, run.world.size(), run.meter.config());
  if (const auto imported = imported_weights(run.directory.checkpoints(), run.world);
      imported && !run.checkpoints.has_newer_elsewhere()) {
    choose_products(run, std::nullopt);
    log_sources(run.config, run.loader.sources(), run.end_sample());
    return initialize(run, *imported);
  }
  const auto history = [&](const Json& about, CarryOver carry) {
    return check_resume(about, run.facts(), carry, run.options.allow_dataset_change);
  };
  run.state.prepare_to_read();
  // On a GPU, to the host so far. What is wrong with the data is not the checkpoint's fault: they
  // are read behind that.
  const auto about = run.checkpoints.load_newest([&](const Json& found) {
    history(found, [](const Stretch::Source& source, std::int64_t) { return source.counter; });
  });
  if (about) {
    run.progress = progress_in(*about);
    run.loader.go_on(history(*about, [&](const Stretch::Source& source, std::int64_t length) {
      return run.loader.sources().carried_over(source, length);
    }));
  }
  log_sources(run.config, run.loader.sources(), run.end_sample());
  if (run.step() < run.steps() || run.options.verify_steps > 0) choose_products(run, about);
  if (!about && run.options.verify_steps > 0)
    throw ConfigError(
        str("--verify-resume: there is no checkpoint in ", run.directory.path().string()));
  if (!about) {
    warn_of_other_tokens(run);
    return initialize(run, run.config.train.init_from);
  }
  run.saved_step = run.step();
  take_loaded(run, *about);
  if (run.step() < run.steps())
    log_info("going on from step ", run.step(), " of ", run.steps(), " in ",
             run.directory.path().string());
  log_changes(*about, run.facts());
  if (run.options.verify_steps > 0) replay(run, *about, compute_step);
}

}  // namespace lockstep
