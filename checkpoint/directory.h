// Directory lists, verifies and creates the checkpoints of a directory. checkpoint/retention.h
// decides which ones stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/epochs.h"
#include "checkpoint/manifest.h"

namespace lockstep {

// Steps of the checkpoints that count (epochs.h); all commands use this list. It is empty if the
// directory does not exist. Throws AccessError if the directory cannot be listed, and the errors of
// EpochRecord::newest().
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& directory);  // ascending
// Steps of all checkpoints in the directory, also of those that do not count.
std::vector<std::int64_t> named_steps(const std::filesystem::path& directory);
std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::int64_t step);
// PATH/checkpoints if PATH is a run, PATH itself if it is an archive of checkpoints, else nullopt.
std::optional<std::filesystem::path> checkpoints_of(const std::filesystem::path& path);
std::optional<std::int64_t> latest_checkpoint(const std::filesystem::path& directory);

// The `about` of the newest checkpoint with a valid manifest in any of the directories; else null.
Json newest_about(const std::vector<std::filesystem::path>& directories);

// Files of a checkpoint that a directory must have: all, or some because other hosts have the rest.
enum class Held : std::uint8_t { all, some };

// Name of the file beside the manifest that marks a checkpoint as copied to its destination.
inline constexpr const char* kCopiedMark = "copied";

// Reads the manifest. Throws DataError if its step differs from the directory's name.
CheckpointManifest manifest_of(const std::filesystem::path& checkpoint);

// Reads a whole checkpoint, or only its manifest and file sizes. Throws DataError that names the
// damaged part. `from_disk`: bypasses the page cache.
enum class Depth : std::uint8_t { sizes, contents };
void verify_checkpoint(const std::filesystem::path& checkpoint, Depth depth, bool from_disk = false,
                       Held held = Held::all);
// Part `number` of `of` parts of a checkpoint: parts of equal file counts for Depth::sizes, of
// equal bytes for Depth::contents.
struct Part {
  int number = 0, of = 1;
};
void verify_part(const std::filesystem::path& checkpoint, const CheckpointManifest& manifest,
                 Part part, Depth depth, bool from_disk = false, Held held = Held::all);

// True if both directories hold the same save, not two saves of the same step.
bool is_copy(const std::filesystem::path& checkpoint, const std::filesystem::path& other);

// Makes the same checkpoint in another directory, from hard links if the file system has them, and
// else from verified copies. Throws DataError if the checkpoint is damaged.
void link_checkpoint(const std::filesystem::path& checkpoint,
                     const std::filesystem::path& directory);

// Deletes a checkpoint. If interrupted, the checkpoint is either complete or absent under its name.
// With an epoch, Epoch::purge() frees its space.
void remove_checkpoint(const std::filesystem::path& checkpoint, const Epoch* epoch = nullptr);

// Renames a checkpoint to step-N.replaced-K, step-N.damaged-K or step-N.fenced-K, and logs it.
enum class Aside : std::uint8_t { replaced, damaged, fenced };
void set_aside(const std::filesystem::path& checkpoint, Aside aside, const Epoch* epoch = nullptr);

// UnfinishedCheckpoint creates step-N.tmp in an existing directory, or saving/step-N in the
// directory of an epoch. commit() makes it a checkpoint; without commit() the destructor deletes
// it. A directory has one writing process at a time, so the constructor deletes leftovers of
// interrupted saves.
class UnfinishedCheckpoint {
 public:
  UnfinishedCheckpoint(const CheckpointDirectory& directory, std::int64_t step);
  UnfinishedCheckpoint(const UnfinishedCheckpoint&) = delete;
  UnfinishedCheckpoint& operator=(const UnfinishedCheckpoint&) = delete;
  ~UnfinishedCheckpoint();

  static std::filesystem::path path_of(const CheckpointDirectory& directory, std::int64_t step);

  // Writes the manifest and renames the directory to step-N. All other files must be written and
  // fsynced. An existing step-N, and later steps unless they stay, are renamed to
  // step-N.replaced-K. They are renamed to .damaged-K if manifest or sizes are invalid, and to
  // .fenced-K if they do not count. With Held::some they are deleted. Throws TransientError, and
  // changes nothing, if another start has taken over the run.
  enum class Later : std::uint8_t { go, stay };
  void commit(std::string_view manifest, Held held = Held::all, Later later = Later::go);

 private:
  CheckpointDirectory directory_;
  std::filesystem::path path_;
  std::int64_t step_;
};

}  // namespace lockstep
