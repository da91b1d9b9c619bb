#include "train/run/start.h"

#include <algorithm>

#include "checkpoint/all_ranks.h"
#include "core/file.h"
#include "core/log.h"

namespace lockstep {
namespace {

// The file of rank 0, on all ranks.
std::optional<AmendmentFile> recorded_amendments(const Run& run) {
  std::optional<AmendmentFile> mine;
  const AllRanks ranks(&run.host.world, "amendments");
  ranks.act_first([&] { mine = AmendmentFile::read(run.host.directory.amendments()); });
  Json json;
  if (mine) {
    json.set("amendments", to_json(mine->amendments));
    json.set("unfinished", mine->unfinished);
  }
  const Json agreed = Json::parse(ranks.told(json.dump()), "rank 0");
  if (agreed.is_null()) return std::nullopt;
  return AmendmentFile{amendments_in(agreed), agreed.at("unfinished").as_string()};
}

void record(const Run& run, const AmendmentFile& file) {
  const AllRanks ranks(&run.host.world, "amendments");
  ranks.act_first([&] {
    run.host.directory.check();
    file.write(run.host.directory.amendments());
  });
}

Rollback rollback_of(const TrainOptions& options) {
  return {*options.from_step, options.skip_steps, options.request};
}

// Whether this start goes back to an earlier checkpoint, because no start before did so.
bool goes_back(const Run& run, const std::optional<AmendmentFile>& file) {
  const auto& options = run.host.options;
  if (!options.from_step) return false;
  const auto request = rollback_of(options).request();
  Amendments before;
  if (file) {
    before = file->amendments;
    if (file->unfinished == request) return true;
  } else if (const auto newest = run.checkpoints.newest_about(); !newest.is_null()) {
    before = amendments_in(newest);  // of a run directory that was lost
  }
  if (find(before, request) == nullptr) return true;
  log_info("--from-step ", *options.from_step,
           " was applied by an earlier start; resuming from the newest checkpoint");
  return false;
}

// Throws TransientError if the loaded step is of another phase than this start assumed: its newest
// checkpoint is damaged or was moved away. The next start finds the right phase.
void check_phase(const Run& run) {
  const auto& options = run.host.options;
  const bool is_later = !options.later_phases.empty() && run.step() >= run.end_step();
  if (!is_later && run.step() >= options.phase_begin) return;
  const AllRanks ranks(&run.host.world, "phase");
  ranks.act_first([&] { write_text(run.host.directory.saved_step(), str(run.step(), "\n")); });
  throw TransientError(str("the newest usable checkpoint (step ", run.step(),
                           ") belongs to another phase than expected; rerun the same command"));
}

// Adds the live changes that the configuration was resolved with: the loaded checkpoint may be
// older than they are. Throws TransientError if the run has others, because only the loaded
// checkpoint has them. The next start finds them in the recorded file.
void check_changes(Run& run) {
  auto& amendments = run.position.progress.amendments;
  const auto& known = run.host.options.changes;
  amendments = AmendmentFile{known, ""}.with(amendments);
  if (changes_of(amendments) == known) return;
  record(run, {amendments, ""});
  throw TransientError(str("the checkpoint of step ", run.step(),
                           " has live changes that were not known at this start; rerun the same "
                           "command"));
}

// Throws ConfigError unless the steps are still to be computed, in one phase.
void check_skip(const Run& run, const StepRange& range) {
  const auto words = str("--skip-steps ", range.first, "..", range.last);
  if (range.first <= run.step())
    throw ConfigError(str(words, ": the run is at step ", run.step(),
                          " and has already read samples of this range; go back to a checkpoint "
                          "before step ",
                          range.first, " with --from-step"));
  if (range.first > run.steps())
    throw ConfigError(str(words, ": the run has only ", run.steps(), " steps"));
  for (const auto& phase : run.host.options.later_phases)
    if (range.first <= phase.from_step && phase.from_step < range.last)
      throw ConfigError(str(words, ": another phase begins after step ", phase.from_step,
                            "; skip the steps up to it and those after it separately"));
}

// Adds the amendments of this start's flags, unless the run has them.
void amend(Run& run) {
  auto& amendments = run.position.progress.amendments;
  const auto& options = run.host.options;
  if (options.from_step) {
    const auto rollback = rollback_to(rollback_of(options));
    if (find(amendments, rollback.request) == nullptr) amendments.push_back(rollback);
  }
  if (!options.skip_steps) return;
  const auto skip = skip_of(*options.skip_steps);
  if (find(amendments, skip.request) == nullptr) {
    check_skip(run, *options.skip_steps);
    amendments.push_back(skip);
  }
  if (skip.first_skipped > run.step())
    log_info("--skip-steps: step ", skip.first_skipped, " reads what step ", skip.last_skipped + 1,
             " would have read");
}

DataHistory with_skips_of(const Run& run, DataHistory history) {
  const auto& progress = run.position.progress;
  return with_skips(std::move(history), progress.amendments, progress.step, progress.first_sample,
                    run.data.loader.step_samples());
}

// Abandons the steps after the loaded one: their metrics first, and then their checkpoints, which
// show that there is something to abandon.
void abandon_later_steps(Run& run, AmendmentFile file) {
  const auto& directory = run.host.directory;
  file.unfinished = rollback_of(run.host.options).request();
  record(run, file);
  // A live run may have gone on since its newest checkpoint.
  const bool has_checkpoints = run.checkpoints.has_after(run.step());
  if (has_checkpoints || run.host.options.request > 0) {
    const AllRanks ranks(&run.host.world, "rollback");
    ranks.act_first([&] {
      abandon_metrics_after(directory, run.step());
      write_text(directory.saved_step(), str(run.step(), "\n"));
    });
  }
  if (has_checkpoints) run.checkpoints.abandon_after(run.step());
  file.unfinished.clear();
  record(run, file);
  log_info("went back to step ", run.step(),
           "; the checkpoints of later steps are kept as step-N.replaced-K and their metrics as "
           "metrics.before-K.jsonl");
}

}  // namespace

std::optional<Json> load_start(Run& run) {
  auto& progress = run.position.progress;
  const auto& options = run.host.options;
  const auto history = [&](const Json& about, CarryOver carry) {
    return check_resume(about, run.facts(), carry, options.allow_dataset_change);
  };
  const auto extension = [&](const Json& about) {
    return check_extension(about, progress_in(about), run.config, options.settings, options.extend);
  };
  const auto accept = [&](const Json& found) {
    history(found, [](const Stretch::Source& source, std::int64_t) { return source.counter; });
    check_same_start(progress_in(found).started_from, run.config);
    extension(found);
  };
  // On a GPU, the state is only on the host so far. The data are read afterwards, so that an error
  // of the data does not count as damage of the checkpoint.
  run.compute.state.prepare_to_read();
  const auto file = recorded_amendments(run);
  const bool back = goes_back(run, file);
  const auto about = back ? run.checkpoints.load_from(*options.from_step, accept)
                          : run.checkpoints.load_newest(accept);
  auto data = run.data.loader.sources().history();
  if (about) {
    progress = progress_in(*about);
    data = history(*about, [&](const Stretch::Source& source, std::int64_t length) {
      return run.data.loader.sources().carried_over(source, length);
    });
    if (const auto extended = extension(*about)) {
      progress.amendments.push_back(*extended);
      log_info("the learning rate is ", extended->rate, " after step ", run.step(),
               ", and its schedule begins again with a peak of ", extended->peak);
    }
  }
  check_phase(run);
  // A rollback by flags returns to the amendments of its checkpoint, except the live changes.
  if (file) {
    const bool is_request = request_number(file->unfinished) > 0;
    const bool has_all = is_request || (file->unfinished.empty() && !back);
    progress.amendments = file->with(progress.amendments, /*only_changes=*/!has_all);
  }
  if (back) forget_saves_after(run.step(), progress.amendments);
  check_changes(run);
  amend(run);
  data = with_skips_of(run, std::move(data));
  const AmendmentFile now{progress.amendments, ""};
  if (back)
    abandon_later_steps(run, now);
  else if (file ? file->amendments != now.amendments || !file->unfinished.empty()
                : !now.amendments.empty())
    record(run, now);
  run.data.loader.go_on(std::move(data));
  return about;
}

void amend_fresh_run(Run& run) {
  if (const auto& step = run.host.options.from_step)
    run.checkpoints.load_from(*step, [](const Json&) {});  // there is none
  auto& amendments = run.position.progress.amendments;
  if (const auto file = recorded_amendments(run)) amendments = file->with(amendments);
  check_changes(run);
  amend(run);
  if (!amendments.empty()) record(run, {amendments, ""});
  run.data.loader.go_on(with_skips_of(run, run.data.loader.sources().history()));
}

}  // namespace lockstep
