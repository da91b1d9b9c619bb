#include "train/run/checkpoint_loop.h"

#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/log.h"
#include "core/units.h"
#include "train/step/weight_hash.h"

namespace lockstep {

double CheckpointLoop::begin(std::optional<double> validation_loss,
                             std::optional<std::uint64_t> weight_hash) {
  const auto begin = std::chrono::steady_clock::now();
  await();
  if (run_.host.is_first()) {
    run_.host.directory.check();
    run_.host.log.reopen_lost(run_.step());
  }
  // The previous checkpoint may become the last good one while this one is written.
  std::vector<std::int64_t> keep{run_.position.progress.good_step, run_.position.saved_step};
  std::erase(keep, -1);
  const auto kept = kept_steps(run_.position.progress.amendments);
  keep.insert(keep.end(), kept.begin(), kept.end());
  Json about = describe_run(run_.position.progress, run_.facts());
  if (validation_loss && std::isfinite(*validation_loss))
    about.set("validation_loss", *validation_loss);
  if (!weight_hash) {
    run_.compute.training.weight_hash().enqueue(run_.host.stream);
    weight_hash = run_.read_weight_hash(run_.step());
  }
  about.set("weight_hash", hex_of(*weight_hash));
  run_.compute.state.take();
  run_.compute.training.hold_update(run_.compute.state.taken());
  saving_ = true;
  run_.checkpoints.begin({.step = run_.step(),
                          .copied = run_.compute.state.taken(),
                          .about = std::move(about),
                          .keep = std::move(keep),
                          // A run that resumes from here does not write the log lines of earlier
                          // steps again.
                          .first = [&log = run_.host.log] { log.sync(); }});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  run_.compute.meter.spent_saving(took.count(), run_.config.checkpoint.every_steps);
  return took.count();
}

void CheckpointLoop::await() {
  if (!std::exchange(saving_, false)) return;
  if (const auto saved = run_.checkpoints.wait()) told(*saved);
}

void CheckpointLoop::await_before_update() {
  if (!saving_ || !run_.compute.shares_state) return;
  const Trace::Span span(run_.host.stream, Component::checkpoint);
  await();
}

// A resume finds the checkpoint on the hosts even if a copy failed.
void CheckpointLoop::finish_copies(bool copies_must_arrive) {
  try {
    run_.checkpoints.finish([this](const auto& copied) { count_copy(copied); });
  } catch (const DataError&) {  // logged already
    if (copies_must_arrive) throw;
  }
}

// All ranks get the result. After a failed periodic save, the next one that is due tries again.
void CheckpointLoop::told(const BackgroundSave::Outcome& outcome) {
  run_.host.log.count_save(outcome.step, outcome.error != nullptr);
  ended_step_ = outcome.step;
  try {
    if (outcome.error) std::rethrow_exception(outcome.error);
    failed_in_a_row_ = 0;
    run_.position.saved_step = outcome.step;
    run_.position.judge_checkpoint();
    if (run_.host.is_first())
      run_.host.log.attempt([&] {
        run_.host.directory.check();
        write_text(run_.host.directory.saved_step(), str(outcome.step, "\n"));
      });
    const auto bytes = static_cast<double>(outcome.bytes);
    log_info("saved step ", outcome.step, " in ", human_seconds(outcome.seconds), ": ",
             human_bytes(bytes), ", ", human_bytes(bytes / outcome.seconds), "/s");
  } catch (const DataError& error) {
    if (run_.host.is_first()) run_.host.directory.check();  // may be the cause
    if (ending_) throw;
    failed(outcome.step, error);
  }
}

void CheckpointLoop::failed(std::int64_t step, const DataError& error) {
  const auto most = run_.config.checkpoint.most_failed;
  const auto what = str("step ", step, " is not saved: ", error.what());
  if (++failed_in_a_row_ < most || leaving_) {
    log_warning(what, "; training continues; consecutive failed saves: ", failed_in_a_row_, " of ",
                most);
    return;
  }
  throw StorageError(str(what, "; consecutive failed saves: ", most,
                         " (checkpoint.most_failed). Correct the cause, then rerun the same "
                         "command to ",
                         run_.position.saved_step < 0
                             ? "start from the beginning"
                             : str("resume from step ", run_.position.saved_step)));
}

void CheckpointLoop::count_copy(const BackgroundCopies::Outcome& copied) {
  const bool is_in_run = *copied.to == run_.host.directory.checkpoints();
  run_.host.log.count_save(copied.step, copied.error != nullptr,
                           is_in_run ? kCopyToRun : kCopyToArchive);
}

std::string CheckpointLoop::last_good() const {
  if (run_.position.saved_step < 0) return "there is no checkpoint yet";
  const auto newest = run_.checkpoints.find(run_.position.saved_step).string();
  const auto good = run_.position.progress.good_step < 0
                        ? std::filesystem::path()
                        : run_.checkpoints.find(run_.position.progress.good_step);
  if (good.empty()) return str("no checkpoint was followed by a good step; do not trust ", newest);
  auto text = str("the last good checkpoint is step ", run_.position.progress.good_step, " in ",
                  good.string());
  if (run_.position.progress.good_step == run_.position.saved_step) return text;
  return str(text, "; to resume from it, move ", newest, " away");
}

void CheckpointLoop::poll() {
  if (const auto saved = run_.checkpoints.poll()) told(*saved);
  run_.checkpoints.log_copies([this](const auto& copied) { count_copy(copied); });
}

double CheckpointLoop::end(std::optional<double> validation_loss,
                           std::optional<std::uint64_t> weight_hash, bool copies_must_arrive) {
  const auto begin_time = std::chrono::steady_clock::now();
  leaving_ = true;
  await();
  ending_ = true;
  if (run_.position.saved_step != run_.step()) {  // else during a pause after this step
    begin(validation_loss, weight_hash);
    await();
  }
  finish_copies(copies_must_arrive);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_time).count();
}

void CheckpointLoop::give_up() {
  leaving_ = true;
  await();
  finish_copies(/*copies_must_arrive=*/false);
}

}  // namespace lockstep
