#include "checkpoint/directory.h"

#include <algorithm>
#include <set>
#include <string>

#include "checkpoint/ranges.h"
#include "core/log.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kUnfinished = ".tmp";

std::vector<fs::path> entries_of(const fs::path& directory) {
  return path_exists(directory) ? directory_entries(directory) : std::vector<fs::path>();
}

// "" where the checkpoint is whole, else what is wrong with it. Throws where it cannot be opened.
std::string damage_of(const fs::path& checkpoint, Depth depth, Held held = Held::all) {
  try {
    verify_checkpoint(checkpoint, depth, /*from_disk=*/false, held);
    return "";
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& error) {
    return error.what();
  }
}

void set_aside(const fs::path& checkpoint, Held held) {
  const bool whole = damage_of(checkpoint, Depth::contents, held).empty();
  fs::path aside;
  std::error_code unknown;
  for (int k = 1; aside.empty() || fs::exists(aside, unknown); ++k)
    aside = str(checkpoint.string(), whole ? ".replaced-" : ".damaged-", k);
  rename_durably(checkpoint, aside);
  log_warning(checkpoint.string(), " is now ", aside.filename().string());
}

// step-N, or step-N.replaced-K.
bool is_named_after(const fs::path& checkpoint, std::int64_t step) {
  const auto normal = checkpoint.lexically_normal();
  const auto name = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  const auto expected = checkpoint_path("", step).string();
  return name == expected || name.starts_with(expected + ".");
}

}  // namespace

void verify_checkpoint(const fs::path& checkpoint, Depth depth, bool from_disk, Held held) {
  if (from_disk) ReadFile(checkpoint / kCheckpointManifestName).drop_cache();
  const CheckpointManifest manifest = read_manifest(checkpoint);
  if (!is_named_after(checkpoint, manifest.step))
    throw DataError(str(checkpoint.string(), ": its manifest is of step ", manifest.step));
  std::vector<std::optional<ReadFile>> files(manifest.files.size());
  for (std::size_t f = 0; f < files.size(); ++f)
    if (held == Held::all || path_exists(checkpoint / manifest.files[f].name))
      files[f].emplace(open_checked(checkpoint, manifest.files[f]));
  if (depth == Depth::sizes) return;
  const auto ranges = ranges_by_file(manifest);
  PieceReader reader;
  for (std::size_t f = 0; f < files.size(); ++f) {
    if (!files[f]) continue;
    if (from_disk) files[f]->drop_cache();
    for (const auto& range : ranges[f])
      reader.verify(*files[f], range);
  }
}

void verify_part(const fs::path& checkpoint, int part, int parts) {
  const CheckpointManifest manifest = read_manifest(checkpoint);
  std::vector<ReadFile> files;
  std::int64_t all = 0, before = 0;
  for (const auto& expected : manifest.files) {
    files.push_back(open_checked(checkpoint, expected));
    all += expected.bytes;
  }
  PieceReader reader;
  for (const auto& tensor : manifest.tensors)
    for (const auto& slice : tensor.slices) {
      const auto bytes = tensor.slice_bytes(slice);
      if (before * parts / std::max<std::int64_t>(all, 1) == part)
        reader.verify(files[static_cast<std::size_t>(slice.file)],
                      {slice.offset, bytes, tensor.name, slice.hash});
      before += bytes;
    }
}

UnfinishedCheckpoint::UnfinishedCheckpoint(const fs::path& directory, std::int64_t step)
    : directory_(directory), path_(path_of(directory, step)), step_(step) {
  std::error_code ignored;
  for (const auto& path : entries_of(directory))
    if (const auto name = path.filename().string();
        name.starts_with(kPrefix) && name.ends_with(kUnfinished))
      fs::remove_all(path, ignored);
  make_directories(path_);
}

UnfinishedCheckpoint::~UnfinishedCheckpoint() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

fs::path UnfinishedCheckpoint::path_of(const fs::path& directory, std::int64_t step) {
  return str(checkpoint_path(directory, step).string(), kUnfinished);
}

void UnfinishedCheckpoint::commit(std::string_view manifest, Held held) {
  const auto final_path = checkpoint_path(directory_, step_);
  write_text(path_ / kCheckpointManifestName, manifest);
  if (std::error_code unknown; fs::exists(final_path, unknown)) set_aside(final_path, held);
  rename_durably(path_, final_path);
  path_.clear();
  for (const auto later : checkpoint_steps(directory_))
    if (later > step_) set_aside(checkpoint_path(directory_, later), held);
}

fs::path checkpoint_path(const fs::path& directory, std::int64_t step) {
  const std::string digits = std::to_string(step);
  constexpr std::size_t kDigits = 8;
  return directory /
         str(kPrefix, std::string(kDigits - std::min(kDigits, digits.size()), '0'), digits);
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& directory) {
  std::vector<std::int64_t> steps;
  for (const auto& path : entries_of(directory)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const std::string digits = name.substr(kPrefix.size());
    if (digits.find_first_not_of("0123456789") != digits.npos || digits.size() > 18) continue;
    const std::int64_t step = std::strtoll(digits.c_str(), nullptr, 10);
    if (checkpoint_path(directory, step) == path) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::int64_t> latest_checkpoint(const fs::path& directory) {
  auto steps = checkpoint_steps(directory);
  for (; !steps.empty(); steps.pop_back()) {
    const std::string damage = damage_of(checkpoint_path(directory, steps.back()), Depth::contents);
    if (damage.empty()) return steps.back();
    log_warning("not used, for it is damaged: ", damage);
  }
  return std::nullopt;
}

namespace {

// Of those that were saved behind an evaluation, the steps of the best: the lowest losses.
std::set<std::int64_t> best_steps(const std::vector<std::int64_t>& steps, const fs::path& directory,
                                  int count) {
  std::vector<std::pair<double, std::int64_t>> losses;
  if (count == 0) return {};
  for (const auto step : steps) {
    const auto about = read_manifest(checkpoint_path(directory, step)).about;
    const Json* loss = about.is_object() ? about.find("validation_loss") : nullptr;
    if (loss != nullptr && loss->is_number()) losses.emplace_back(loss->as_double(), -step);
  }
  std::sort(losses.begin(), losses.end());  // of equal ones the newer
  std::set<std::int64_t> best;
  for (std::size_t i = 0; i < std::min(losses.size(), static_cast<std::size_t>(count)); ++i)
    best.insert(-losses[i].second);
  return best;
}

}  // namespace

void prune_checkpoints(const fs::path& directory, const Retention& retention,
                       const std::vector<std::int64_t>& keep, Held held) {
  LOCKSTEP_CHECK(retention.last > 0, "keep at least one checkpoint, not ", retention.last);
  std::vector<std::int64_t> whole;
  for (const auto step : checkpoint_steps(directory))
    if (damage_of(checkpoint_path(directory, step), Depth::sizes, held).empty())
      whole.push_back(step);
  if (std::ssize(whole) <= retention.last) return;
  const auto best = best_steps(whole, directory, retention.best);
  const auto stays = [&](std::int64_t step) {
    return std::find(keep.begin(), keep.end(), step) != keep.end() || best.contains(step) ||
           (retention.every > 0 && step % retention.every == 0);
  };
  const auto newest = whole.back();
  whole.resize(whole.size() - static_cast<std::size_t>(retention.last));
  std::erase_if(whole, stays);
  if (whole.empty()) return;
  verify_checkpoint(checkpoint_path(directory, newest), Depth::contents, /*from_disk=*/true, held);
  for (const auto step : whole) {
    const auto path = checkpoint_path(directory, step);
    // Under its name it must be whole or not there, also when this is interrupted.
    const fs::path going = str(path.string(), kUnfinished);
    try {
      rename_durably(path, going);
      fs::remove_all(going);
    } catch (const std::exception& error) {
      log_warning("cannot delete ", path.string(), ": ", error.what());
    }
  }
}

}  // namespace lockstep
