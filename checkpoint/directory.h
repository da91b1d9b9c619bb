// A directory of checkpoints: which there are, whether they are whole, how one comes to be there.
// Which stay: checkpoint/retention.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"

namespace lockstep {

// As every verb sees it; one that is not there has none. Throws AccessError where it cannot be
// listed.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& directory);  // ascending
std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::int64_t step);
// Where a run has its checkpoints, PATH/checkpoints, or an archive of one, PATH itself; nothing
// where PATH is neither.
std::optional<std::filesystem::path> checkpoints_of(const std::filesystem::path& path);
std::optional<std::int64_t> latest_checkpoint(const std::filesystem::path& directory);

// Which of a checkpoint's files a directory has: all; or those that are there, as others are on
// other machines.
enum class Held : std::uint8_t { all, some };

// Beside the manifest of a checkpoint that was copied on from there.
inline constexpr const char* kCopiedMark = "copied";

// Its manifest, which must be of the step that its name says.
CheckpointManifest manifest_of(const std::filesystem::path& checkpoint);

// Reads all of a checkpoint, or only manifest and sizes. Throws DataError naming what is damaged.
// `from_disk`: what the page cache holds of it does not count.
enum class Depth : std::uint8_t { sizes, contents };
void verify_checkpoint(const std::filesystem::path& checkpoint, Depth depth, bool from_disk = false,
                       Held held = Held::all);
// The part number `part` of `parts` of it: of as many files; of contents of as many bytes each.
struct Part {
  int number = 0, of = 1;
};
void verify_part(const std::filesystem::path& checkpoint, const CheckpointManifest& manifest,
                 Part part, Depth depth, bool from_disk = false, Held held = Held::all);

// Whether two directories have the same save, not one of a step that the run came to twice.
bool is_copy(const std::filesystem::path& checkpoint, const std::filesystem::path& other);

// Under its name it is whole or not there, also when this is interrupted.
void remove_checkpoint(const std::filesystem::path& checkpoint);

// Renames it step-N.replaced-K, or step-N.damaged-K, and says so.
enum class Aside : std::uint8_t { replaced, damaged };
void set_aside(const std::filesystem::path& checkpoint, Aside aside);

// A checkpoint that is written into step-N.tmp of a directory that is there, and exists from
// commit() on; without it nothing is left. One process at a time has one in a directory: what
// interrupted ones left is removed.
class UnfinishedCheckpoint {
 public:
  UnfinishedCheckpoint(const std::filesystem::path& directory, std::int64_t step);
  UnfinishedCheckpoint(const UnfinishedCheckpoint&) = delete;
  UnfinishedCheckpoint& operator=(const UnfinishedCheckpoint&) = delete;
  ~UnfinishedCheckpoint();

  static std::filesystem::path path_of(const std::filesystem::path& directory, std::int64_t step);

  // All files but the manifest are there and fsynced. A step-N that is there already, and any of a
  // later step, unless they stay, is renamed step-N.replaced-K, or .damaged-K where manifest or
  // sizes say so; of files that machines have of their own they are deleted.
  enum class Later : std::uint8_t { go, stay };
  void commit(std::string_view manifest, Held held = Held::all, Later later = Later::go);

 private:
  std::filesystem::path directory_, path_;
  std::int64_t step_;
};

}  // namespace lockstep
