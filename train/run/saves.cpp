#include "train/run/saves.h"

#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/units.h"
#include "train/step/weight_hash.h"

namespace lockstep {

double Saves::begin(std::optional<double> validation_loss,
                    std::optional<std::uint64_t> weight_hash) {
  const auto begin = std::chrono::steady_clock::now();
  await();
  if (run_.is_first()) {
    run_.directory.check();
    run_.log.reopen_lost(run_.step());
  }
  // The one before may come to be the last good one while this is written.
  std::vector<std::int64_t> keep{run_.progress.good_step, run_.saved_step};
  std::erase(keep, -1);
  Json about = describe_run(run_.progress, run_.facts());
  if (validation_loss && std::isfinite(*validation_loss))
    about.set("validation_loss", *validation_loss);
  if (!weight_hash) {
    run_.training.weight_hash().enqueue(run_.compute);
    weight_hash = run_.read_weight_hash(run_.step());
  }
  about.set("weight_hash", hex_of(*weight_hash));
  run_.state.take();
  run_.training.hold_update(run_.state.taken());
  saving_ = true;
  run_.checkpoints.begin({.step = run_.step(),
                          .copied = run_.state.taken(),
                          .about = std::move(about),
                          .keep = std::move(keep),
                          // A run that goes on from here does not write again what its logs say of
                          // the steps before.
                          .first = [&log = run_.log] { log.sync(); }});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  run_.meter.spent_saving(took.count(), run_.config.checkpoint.every_steps);
  return took.count();
}

void Saves::await() {
  if (!std::exchange(saving_, false)) return;
  if (const auto saved = run_.checkpoints.wait()) told(*saved);
}

// A run that goes on some day finds it on the machines.
void Saves::finish_copies(bool must) {
  try {
    run_.checkpoints.finish();
  } catch (const DataError&) {  // the log has said it
    if (must) throw;
  }
}

// A periodic save that cannot be written is tried again when the next one is due: all ranks are
// told of it.
void Saves::told(const BackgroundSave::Outcome& outcome) {
  try {
    if (outcome.error) std::rethrow_exception(outcome.error);
    run_.saved_step = outcome.step;
    run_.judge_checkpoint();
    const auto bytes = static_cast<double>(outcome.bytes);
    log_info("saved step ", outcome.step, " in ", human_seconds(outcome.seconds), ": ",
             human_bytes(bytes), ", ", human_bytes(bytes / outcome.seconds), "/s");
  } catch (const DataError& error) {
    if (ending_) throw;
    log_warning("step ", outcome.step, " is not saved: ", error.what(), "; the run goes on");
  }
}

std::string Saves::last_good() const {
  if (run_.saved_step < 0) return "there is no checkpoint yet";
  const auto newest = run_.checkpoints.find(run_.saved_step).string();
  const auto good = run_.progress.good_step < 0 ? std::filesystem::path()
                                                : run_.checkpoints.find(run_.progress.good_step);
  if (good.empty())
    return str("no step after a checkpoint was good; ", newest, " is not to be trusted");
  auto text =
      str("the last good checkpoint is step ", run_.progress.good_step, " in ", good.string());
  if (run_.progress.good_step == run_.saved_step) return text;
  return str(text, "; to go on from it, move ", newest, " away");
}

void Saves::poll() {
  if (const auto saved = run_.checkpoints.poll()) told(*saved);
  run_.checkpoints.log_copies();
}

double Saves::end(std::optional<double> validation_loss, std::optional<std::uint64_t> weight_hash,
                  bool must) {
  const auto begin_time = std::chrono::steady_clock::now();
  await();
  ending_ = true;
  begin(validation_loss, weight_hash);
  await();
  finish_copies(must);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_time).count();
}

void Saves::give_up() {
  await();
  finish_copies(/*must=*/false);
}

}  // namespace lockstep
