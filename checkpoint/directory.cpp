#include "checkpoint/directory.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/ranges.h"
#include "core/hash.h"
#include "core/log.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kUnfinished = ".tmp";

std::vector<fs::path> entries_of(const fs::path& directory) {
  return path_exists(directory) ? directory_entries(directory) : std::vector<fs::path>();
}

// "" if the checkpoint is valid, otherwise the problem. Throws if it cannot be opened.
std::string damage_of(const fs::path& checkpoint, Depth depth) {
  try {
    verify_checkpoint(checkpoint, depth);
    return "";
  } catch (const AccessError&) {
    throw;
  } catch (const DataError& error) {
    return error.what();
  }
}

// True for the names step-N and step-N.replaced-K.
bool is_named_after(const fs::path& checkpoint, std::int64_t step) {
  const auto normal = checkpoint.lexically_normal();
  const auto name = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  const auto expected = checkpoint_path("", step).string();
  return name == expected || name.starts_with(expected + ".");
}

}  // namespace

void remove_checkpoint(const fs::path& checkpoint, const Epoch* epoch) {
  fs::path going = str(checkpoint.string(), ".old", kUnfinished);
  if (epoch != nullptr) {
    epoch->check();
    going = epoch->deleted() / checkpoint.filename();
    if (path_exists(going)) remove_checkpoint(going);
  }
  rename_durably(checkpoint, going);
  if (epoch == nullptr) remove_tree(going);
}

bool is_copy(const fs::path& checkpoint, const fs::path& other) {
  const auto a = checkpoint / kCheckpointManifestName, b = other / kCheckpointManifestName;
  return path_exists(b) && hash_of_file(a) == hash_of_file(b);
}

void set_aside(const fs::path& checkpoint, Aside aside, const Epoch* epoch) {
  const auto* suffix = aside == Aside::replaced  ? ".replaced-"
                       : aside == Aside::damaged ? ".damaged-"
                                                 : ".fenced-";
  fs::path name, from = checkpoint;
  for (int k = 1; name.empty() || path_exists(name); ++k)
    name = str(checkpoint.string(), suffix, k);
  if (epoch != nullptr) {  // by way of its own directory, as another start may own the checkpoint
    remove_checkpoint(checkpoint, epoch);
    from = epoch->deleted() / checkpoint.filename();
  }
  rename_durably(from, name);
  log_warning(checkpoint.string(), " is now ", name.filename().string(),
              aside == Aside::fenced
                  ? ": it was not there when the run was started last, so a stale process may have "
                    "written it"
                  : "");
}

CheckpointManifest manifest_of(const fs::path& checkpoint) {
  auto manifest = read_manifest(checkpoint);
  if (!is_named_after(checkpoint, manifest.step))
    throw DataError(str(checkpoint.string(), ": the manifest belongs to step ", manifest.step));
  return manifest;
}

void verify_checkpoint(const fs::path& checkpoint, Depth depth, bool from_disk, Held held) {
  if (from_disk) ReadFile(checkpoint / kCheckpointManifestName).drop_cache();
  verify_part(checkpoint, manifest_of(checkpoint), {}, depth, from_disk, held);
}

void verify_part(const fs::path& checkpoint, const CheckpointManifest& manifest, Part part,
                 Depth depth, bool from_disk, Held held) {
  std::vector<std::size_t> here;
  std::int64_t all = 0, before = 0;
  for (std::size_t f = 0; f < manifest.files.size(); ++f) {
    if (held == Held::some && !path_exists(checkpoint / manifest.files[f].name)) continue;
    here.push_back(f);
    all += manifest.files[f].bytes;
  }
  for (std::size_t i = 0; i < here.size(); ++i)
    if (static_cast<int>(i) % part.of == part.number)
      open_checked(checkpoint, manifest.files[here[i]]);
  if (depth == Depth::sizes) return;
  const auto ranges = ranges_by_file(manifest);
  for (const auto f : here) {
    std::optional<ReadFile> file;
    PieceReader reader;
    for (const auto& range : ranges[f]) {
      const bool mine = before * part.of / std::max<std::int64_t>(all, 1) == part.number;
      before += range.bytes;
      if (!mine) continue;
      if (!file) {
        file.emplace(open_checked(checkpoint, manifest.files[f]));
        if (from_disk) file->drop_cache();
      }
      reader.verify(*file, range);
    }
  }
}

UnfinishedCheckpoint::UnfinishedCheckpoint(const CheckpointDirectory& directory, std::int64_t step)
    : directory_(directory), path_(path_of(directory, step)), step_(step) {
  if (directory.epoch != nullptr) directory.epoch->check();
  std::error_code ignored;
  for (const auto& path : entries_of(path_.parent_path()))
    if (const auto name = path.filename().string();
        name.starts_with(kPrefix) && (directory.epoch != nullptr || name.ends_with(kUnfinished)))
      fs::remove_all(path, ignored);
  make_directory(path_);
}

UnfinishedCheckpoint::~UnfinishedCheckpoint() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

fs::path UnfinishedCheckpoint::path_of(const CheckpointDirectory& directory, std::int64_t step) {
  if (directory.epoch != nullptr) return checkpoint_path(directory.epoch->saving(), step);
  return str(checkpoint_path(directory.path, step).string(), kUnfinished);
}

void UnfinishedCheckpoint::commit(std::string_view manifest, Held held, Later stays) {
  const auto* epoch = directory_.epoch;
  if (epoch != nullptr) epoch->check();
  const auto final_path = checkpoint_path(directory_.path, step_);
  const auto go = [&](std::int64_t step) {
    const auto checkpoint = checkpoint_path(directory_.path, step);
    if (held == Held::some) {
      remove_checkpoint(checkpoint);  // a host's own directory keeps no damaged checkpoints
    } else {
      const auto newest = EpochRecord::newest(directory_.path);
      const auto aside = newest && !newest->counts(step, checkpoint)   ? Aside::fenced
                         : damage_of(checkpoint, Depth::sizes).empty() ? Aside::replaced
                                                                       : Aside::damaged;
      set_aside(checkpoint, aside, epoch);
    }
  };
  write_text(path_ / kCheckpointManifestName, manifest);
  if (path_exists(final_path)) go(step_);
  if (const auto id = manifest_id_in(manifest);
      epoch != nullptr && id && id->epoch != epoch->number())
    epoch->count(step_, id->hash);  // a copy of an earlier save
  rename_durably(path_, final_path);
  path_.clear();
  if (stays == Later::stay) return;
  for (const auto later : named_steps(directory_.path))
    if (later > step_) go(later);
}

void link_checkpoint(const fs::path& checkpoint, const fs::path& directory) {
  verify_checkpoint(checkpoint, Depth::contents);
  const auto manifest = manifest_of(checkpoint);
  UnfinishedCheckpoint copy(directory, manifest.step);
  const auto into = UnfinishedCheckpoint::path_of(directory, manifest.step);
  const auto ranges = ranges_by_file(manifest);
  for (std::size_t f = 0; f < ranges.size(); ++f) {
    const auto& name = manifest.files[f].name;
    std::error_code no_link;  // another file system, or one without links
    fs::create_hard_link(checkpoint / name, into / name, no_link);
    if (no_link) copy_verified(checkpoint / name, into / name, ranges[f]);
  }
  copy.commit(read_text(checkpoint / kCheckpointManifestName, kMostManifestBytes));
}

fs::path checkpoint_path(const fs::path& directory, std::int64_t step) {
  const std::string digits = std::to_string(step);
  constexpr std::size_t kDigits = 8;
  return directory /
         str(kPrefix, std::string(kDigits - std::min(kDigits, digits.size()), '0'), digits);
}

std::vector<std::int64_t> checkpoint_steps(const fs::path& directory) {
  auto steps = named_steps(directory);
  if (steps.empty()) return steps;
  if (const auto newest = EpochRecord::newest(directory))
    std::erase_if(steps, [&](std::int64_t step) {
      return !newest->counts(step, checkpoint_path(directory, step));
    });
  return steps;
}

std::vector<std::int64_t> named_steps(const fs::path& directory) {
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

std::optional<fs::path> checkpoints_of(const fs::path& path) {
  if (directory_exists(path / "checkpoints")) return path / "checkpoints";
  const bool is_archive = directory_exists(path) && !checkpoint_steps(path).empty();
  return is_archive ? std::optional(path) : std::nullopt;
}

Json newest_about(const std::vector<fs::path>& directories) {
  std::vector<std::pair<std::int64_t, fs::path>> all;
  for (const auto& directory : directories)
    for (const auto step : checkpoint_steps(directory))
      all.emplace_back(step, checkpoint_path(directory, step));
  std::ranges::sort(all, std::greater{});
  for (const auto& [step, path] : all)
    try {
      return manifest_of(path).about;
    } catch (const DataError&) {  // a resume reports it
    }
  return {};
}

std::optional<std::int64_t> latest_checkpoint(const fs::path& directory) {
  auto steps = checkpoint_steps(directory);
  for (; !steps.empty(); steps.pop_back()) {
    const std::string damage = damage_of(checkpoint_path(directory, steps.back()), Depth::contents);
    if (damage.empty()) return steps.back();
    log_warning("damaged checkpoint skipped: ", damage);
  }
  return std::nullopt;
}

}  // namespace lockstep
