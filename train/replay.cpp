#include "train/replay.h"

#include <map>

#include "core/error.h"

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
                          ": verify with the settings that the run had, then change them"));
  const auto words = [](const RecordedStep& s) {
    std::ostringstream out;
    out.precision(17);
    out << "loss " << s.loss << ", gradient norm " << s.grad_norm;
    if (s.weight_hash) out << ", weight hash " << *s.weight_hash;
    return std::move(out).str();
  };
  throw Error(str("step ", recorded.step, " does not come again as it was: ", words(now),
                  "; the run recorded ", words(recorded),
                  "; nothing was changed. The log says above what differs from the run that was "
                  "saved; if nothing does, this machine or the one before computes wrongly"));
}

}  // namespace lockstep
