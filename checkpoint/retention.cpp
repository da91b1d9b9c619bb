#include "checkpoint/retention.h"

#include <algorithm>
#include <set>

#include "core/file.h"
#include "core/log.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Steps with the lowest validation losses, among checkpoints that have one.
std::set<std::int64_t> best_steps(const std::vector<std::int64_t>& steps, const fs::path& directory,
                                  int count) {
  std::vector<std::pair<double, std::int64_t>> losses;
  if (count == 0) return {};
  for (const auto step : steps) {
    const auto about = read_manifest(checkpoint_path(directory, step)).about;
    const Json* loss = about.is_object() ? about.find("validation_loss") : nullptr;
    if (loss != nullptr && loss->is_number()) losses.emplace_back(loss->as_double(), -step);
  }
  std::sort(losses.begin(), losses.end());  // equal losses: the newer step first
  std::set<std::int64_t> best;
  for (std::size_t i = 0; i < std::min(losses.size(), static_cast<std::size_t>(count)); ++i)
    best.insert(-losses[i].second);
  return best;
}

bool has_right_sizes(const fs::path& checkpoint, Held held) {
  try {
    verify_checkpoint(checkpoint, Depth::sizes, /*from_disk=*/false, held);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

bool was_copied(const fs::path& checkpoint, const fs::path& to) {
  try {
    return path_exists(checkpoint / kCopiedMark) || is_copy(checkpoint, to / checkpoint.filename());
  } catch (const DataError&) {  // for example if an archive is unavailable
    return false;
  }
}

std::vector<std::int64_t> steps_of_right_sizes(const fs::path& directory, Held held) {
  std::vector<std::int64_t> steps;
  for (const auto step : checkpoint_steps(directory))
    if (has_right_sizes(checkpoint_path(directory, step), held)) steps.push_back(step);
  return steps;
}

std::vector<std::int64_t> steps_until(std::int64_t newest, const fs::path& directory, Held held) {
  auto steps = steps_of_right_sizes(directory, held);
  std::erase_if(steps, [&](std::int64_t step) { return step > newest; });
  return steps;
}

std::vector<std::int64_t> unneeded(std::vector<std::int64_t> steps, const fs::path& directory,
                                   const Retention& retention,
                                   const std::vector<std::int64_t>& keep) {
  if (std::ssize(steps) <= retention.last) return {};
  auto stay = best_steps(steps, directory, retention.best);
  for (const auto step : keep)  // or the step before, if this step does not exist here
    if (const auto behind = std::upper_bound(steps.begin(), steps.end(), step);
        behind != steps.begin())
      stay.insert(*std::prev(behind));
  steps.resize(steps.size() - static_cast<std::size_t>(retention.last));
  std::erase_if(steps, [&](std::int64_t step) {
    if (stay.contains(step)) return true;
    if (retention.every == 0 || step % retention.every != 0) return false;
    return retention.copied_to.empty() ||
           !was_copied(checkpoint_path(directory, step), retention.copied_to);
  });
  return steps;
}

std::vector<std::int64_t> remove_all_of(const CheckpointDirectory& directory,
                                        const std::vector<std::int64_t>& steps) {
  std::vector<std::int64_t> gone;
  for (const auto step : steps)
    try {
      remove_checkpoint(checkpoint_path(directory.path, step), directory.epoch);
      gone.push_back(step);
    } catch (const DataError& error) {
      log_own_warning("cannot delete ", checkpoint_path(directory.path, step).string(), ": ",
                      error.what());
    }
  return gone;
}

}  // namespace

std::vector<std::int64_t> prunable_checkpoints(const fs::path& directory,
                                               const Retention& retention,
                                               const std::vector<std::int64_t>& keep) {
  LOCKSTEP_CHECK(retention.last > 0, "expected to keep at least one checkpoint, got ",
                 retention.last);
  return unneeded(steps_of_right_sizes(directory, Held::all), directory, retention, keep);
}

std::vector<std::int64_t> prune_checkpoints(const CheckpointDirectory& directory,
                                            const Retention& retention,
                                            const std::vector<std::int64_t>& keep) {
  auto going = prunable_checkpoints(directory.path, retention, keep);
  if (going.empty()) return {};
  const auto newest = steps_of_right_sizes(directory.path, Held::all).back();
  verify_checkpoint(checkpoint_path(directory.path, newest), Depth::contents, /*from_disk=*/true);
  return remove_all_of(directory, going);
}

void prune_checkpoints(const AllRanks& ranks, const HostRanks& machine,
                       const CheckpointDirectory& directory, std::int64_t newest,
                       const Retention& retention, const std::vector<std::int64_t>& keep,
                       FunctionRef<void()> acted) {
  const bool own = machine.own_directory;
  const auto held = own ? Held::some : Held::all;
  const bool leads = own ? machine.ranks.front() == ranks.rank() : ranks.is_first();
  std::vector<std::int64_t> going;
  const auto look = [&]() -> std::string {
    try {
      if (leads)
        going =
            unneeded(steps_until(newest, directory.path, held), directory.path, retention, keep);
    } catch (const DataError& error) {
      log_own_warning("no checkpoint is deleted: ", error.what());
    }
    return going.empty() ? "" : "some";
  };
  const auto said = ranks.act(look, acted);
  const bool some = std::find(said.begin(), said.end(), "some") != said.end();
  if (ranks.told(some ? "some" : "").empty()) return;
  const auto place = std::find(machine.ranks.begin(), machine.ranks.end(), ranks.rank());
  const Part part = own ? Part{static_cast<int>(place - machine.ranks.begin()),
                               static_cast<int>(machine.ranks.size())}
                        : Part{ranks.rank(), ranks.size()};
  const auto read_back = [&]() -> std::string {
    const auto path = checkpoint_path(directory.path, newest);
    if (part.number == 0) ReadFile(path / kCheckpointManifestName).drop_cache();
    verify_part(path, manifest_of(path), part, Depth::contents, /*from_disk=*/true, held);
    return "";
  };
  ranks.act(read_back, acted);
  ranks.act_if(
      !going.empty(), [&] { remove_all_of(directory, going); }, acted);
}

}  // namespace lockstep
