// A directory of checkpoints: which there are, whether they are whole, how one comes to be there,
// which stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

// As every verb sees it; one that is not there has none. Throws AccessError where it cannot be
// listed.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& directory);  // ascending
std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::int64_t step);
std::optional<std::int64_t> latest_checkpoint(const std::filesystem::path& directory);

// Which of a checkpoint's files a directory has: all; or those that are there, as others are on
// other machines.
enum class Held : std::uint8_t { all, some };

// Reads all of a checkpoint, or only manifest and sizes. Throws DataError naming what is damaged.
// `from_disk`: what the page cache holds of it does not count.
enum class Depth : std::uint8_t { sizes, contents };
void verify_checkpoint(const std::filesystem::path& checkpoint, Depth depth, bool from_disk = false,
                       Held held = Held::all);
// The part number `part` of `parts` of its contents, of about as many bytes each.
void verify_part(const std::filesystem::path& checkpoint, int part, int parts);

// A checkpoint that is written into step-N.tmp, and exists from commit() on; without it nothing is
// left. One process at a time has one in a directory: what interrupted ones left is removed.
class UnfinishedCheckpoint {
 public:
  UnfinishedCheckpoint(const std::filesystem::path& directory, std::int64_t step);
  UnfinishedCheckpoint(const UnfinishedCheckpoint&) = delete;
  UnfinishedCheckpoint& operator=(const UnfinishedCheckpoint&) = delete;
  ~UnfinishedCheckpoint();

  static std::filesystem::path path_of(const std::filesystem::path& directory, std::int64_t step);

  // All files but the manifest are there and fsynced. A step-N that is there already, and any of a
  // later step, is renamed step-N.replaced-K, or .damaged-K where it does not validate.
  void commit(std::string_view manifest, Held held = Held::all);

 private:
  std::filesystem::path directory_, path_;
  std::int64_t step_;
};

// Which checkpoints stay when a newer one is saved.
struct Retention {
  int last = 0;            // the newest so many; 0: all
  std::int64_t every = 0;  // those of a multiple of so many steps; 0: none for that
  int best = 0;            // the so many of the lowest `validation_loss` in their `about`
};

// Deletes what need not stay, of those whose sizes are right, but never those of the steps `keep`;
// nothing unless the newest, read back from the disk, is whole (else throws). Damaged ones stay for
// a person to look at.
void prune_checkpoints(const std::filesystem::path& directory, const Retention& retention,
                       const std::vector<std::int64_t>& keep = {}, Held held = Held::all);

}  // namespace lockstep
