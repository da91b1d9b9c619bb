// Epochs number the starts of a run and keep a stale process, which woke up after another start
// took over its run, from changing the checkpoints.
//
//   checkpoints/epochs/00000017/about.json      who claimed it, and the earlier checkpoints that
//                                               count
//   checkpoints/epochs/00000017/work/saving/    checkpoints that are being written
//   checkpoints/epochs/00000017/work/deleted/   deleted ones, until the next save begins
//
// A start first renames the `work` of the epoch before to `fenced`. Then it lists the checkpoints
// that count, and claims the next number by a rename that only one process can win. Every rename
// by which a process changes checkpoints/ begins or ends in its own `work`, so it fails once that
// directory has another name. A rename that is under way on a remote file system nevertheless takes
// effect in `fenced`: a checkpoint that arrives is not in the list, and one that it takes away is
// taken back by the next start. A directory without epochs/ is epoch 0: all its checkpoints count.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lockstep {

// The content of about.json.
struct EpochRecord {
  std::int64_t number = 0;
  std::string id;  // random, so that two processes that claim one number differ
  std::string host;
  std::int64_t pid = 0, time_seconds = 0;  // of the start; seconds since 1970
  // Hashes of the manifests of earlier epochs that count, by step. "": it could not be read.
  std::map<std::int64_t, std::string> checkpoints;

  // The record of the newest epoch; nullopt in a directory without epochs. Throws DataError with
  // the remedy if the record is damaged or a newer program wrote it.
  static std::optional<EpochRecord> newest(const std::filesystem::path& checkpoints);
  static EpochRecord parse(const std::string& text, const std::string& what);
  std::string dump() const;

  // Whether a checkpoint of `step` counts. One whose manifest cannot be read counts, so that
  // readers report its damage.
  bool counts(std::int64_t step, const std::filesystem::path& checkpoint) const;
};

class Epoch {
 public:
  // Claims the next epoch. For one process that holds the lock of the run. Then takes back what
  // the epoch before deleted, renames checkpoints that do not count to step-N.fenced-K, and deletes
  // unfinished ones. Throws TransientError if another process claims the epoch at the same time,
  // and ConfigError if the file system cannot rename as epochs need.
  static Epoch claim(const std::filesystem::path& checkpoints);
  // The epoch that another rank has claimed. `id`: of its record; "": check() does not compare it.
  Epoch(std::filesystem::path checkpoints, std::int64_t number, std::string id = "");

  std::int64_t number() const { return number_; }
  std::filesystem::path saving() const { return work() / "saving"; }
  std::filesystem::path deleted() const { return work() / "deleted"; }

  // Throws TransientError if another start has taken over the run, or if another run has replaced
  // its directory. Any thread may call it.
  void check() const;
  // Lists a checkpoint of another epoch, which is about to be copied here, as one that counts.
  void count(std::int64_t step, const std::string& manifest_hash) const;
  // Removes the checkpoints in deleted(). Logs a warning if one cannot be removed.
  void purge() const;

 private:
  std::filesystem::path place() const;
  std::filesystem::path work() const { return place() / "work"; }
  void tidy(const EpochRecord& record) const;
  void take_back(std::int64_t number, const EpochRecord& record) const;

  std::filesystem::path checkpoints_;
  std::int64_t number_;
  std::string id_;
};

// A directory of checkpoints, and the epoch of the process that writes there.
struct CheckpointDirectory {
  // NOLINTNEXTLINE(google-explicit-constructor)
  CheckpointDirectory(std::filesystem::path where, const Epoch* of_process = nullptr)
      : path(std::move(where)), epoch(of_process) {}

  std::filesystem::path path;
  const Epoch* epoch;  // must outlive this; null: the directory has no epochs
};

}  // namespace lockstep
