#include "train/run/replay.h"

#include <map>

#include "checkpoint/directory.h"
#include "core/json.h"
#include "core/log.h"

namespace lockstep {

std::optional<Replay> find_replay(const std::filesystem::path& metrics,
                                  std::span<const std::int64_t> checkpoints, std::int64_t most) {
  if (checkpoints.empty()) return std::nullopt;
  std::map<std::int64_t, RecordedStep> recorded;
  for (auto& step : recorded_steps(metrics, checkpoints.front()))
    recorded[step.step] = std::move(step);
  Replay best;
  for (std::size_t i = checkpoints.size(); i-- > 0 && std::ssize(best.steps) < most;) {
    Replay replay{.from = checkpoints[i], .steps = {}};
    for (auto next = recorded.find(replay.from + 1);
         next != recorded.end() && next->first == replay.from + std::ssize(replay.steps) + 1 &&
         std::ssize(replay.steps) < most;
         ++next)
      replay.steps.push_back(next->second);
    if (replay.steps.size() > best.steps.size()) best = std::move(replay);
  }
  return best.steps.empty() ? std::nullopt : std::optional(std::move(best));
}

void check_again(const RecordedStep& recorded, const RecordedStep& now) {
  if (recorded == now) return;
  if (recorded.learning_rate != now.learning_rate)
    throw ConfigError(str("--verify-resume: step ", now.step, " has the learning rate ",
                          now.learning_rate, ", but had ", recorded.learning_rate,
                          ": verify with the old settings first, then change them"));
  const auto words = [](const RecordedStep& s) {
    std::ostringstream out;
    out.precision(17);
    out << "loss " << s.loss << ", gradient norm " << s.grad_norm;
    if (s.weight_hash) out << ", weight hash " << *s.weight_hash;
    return std::move(out).str();
  };
  throw Error(str("step ", recorded.step, " is not reproduced: ", words(now), "; the run recorded ",
                  words(recorded),
                  "; nothing was changed. The log above lists what differs from the saved run; if "
                  "nothing differs, this host or the previous one computes incorrectly"));
}

ReplayComparison agreed_replay(const RunDirectory& run, std::int64_t first, std::int64_t most,
                               World& world) {
  std::optional<Replay> found;
  if (world.rank() == 0) {
    auto checkpoints = checkpoint_steps(run.checkpoints());
    std::erase_if(checkpoints, [&](std::int64_t step) { return step < first; });
    found = find_replay(run.metrics(), checkpoints, most);
  }
  Json mine;
  mine.set("from", found ? found->from : -1);
  mine.set("steps", found ? std::ssize(found->steps) : 0);
  const Json agreed = Json::parse(world.exchange(mine.dump()).front(), "rank 0");
  const auto from = agreed.at("from").as_integer(), count = agreed.at("steps").as_integer();
  if (count == 0)
    throw ConfigError(str("--verify-resume: ", run.metrics().string(),
                          " has no step after a checkpoint of this phase of the run; raise "
                          "checkpoint.keep_last to keep an earlier checkpoint"));
  return {from, count, std::move(found)};
}

void ReplayComparison::compare(RecordedStep now) {
  const auto index = static_cast<std::size_t>(done_++);
  if (recorded_) {
    const auto& recorded = recorded_->steps[index];
    if (!recorded.weight_hash) now.weight_hash.reset();
    check_again(recorded, now);
    hashes_ += recorded.weight_hash ? 1 : 0;
  }
  if (is_done())
    log_info("computed steps ", from_ + 1, " to ", from_ + steps_,
             " again from the checkpoint of step ", from_, ": losses, gradient norms and ", hashes_,
             " weight hashes are bit-identical to the recorded ones");
}

}  // namespace lockstep
