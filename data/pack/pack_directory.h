// PackDirectory is OUT.tmp, where pack works until the dataset gets its name:
//   lock           held by the process that works there
//   command.json   the command and its inputs
//   progress.json  a PackRecord, written when a shard was full
//   shards.jsonl   the full shards, one PackedShard per line; the record says how many bytes count
//   dataset/       becomes OUT
// If pack is stopped, the directory remains and the same command resumes. Inputs after the place up
// to which all is written may have changed. A directory of that name with any other file is an
// error.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "data/hashed_file.h"
#include "data/pack/pack_record.h"

namespace lockstep {

class PackDirectory {
 public:
  // `command`: members that must be the same to resume, and "inputs", a list of {"file", ...};
  // inputs that were read must be the same. resumable: false if the input cannot be read twice.
  // Throws:
  // - UsageError if `out` exists, or the directory belongs to another command or is not of packing.
  // - TransientError if another process works there.
  PackDirectory(std::filesystem::path out, Json command, bool resumable);
  PackDirectory(const PackDirectory&) = delete;
  PackDirectory& operator=(const PackDirectory&) = delete;
  ~PackDirectory();  // removes the directory if it cannot be resumed

  static std::filesystem::path work_of(const std::filesystem::path& out);  // OUT.tmp

  std::filesystem::path dataset() const;
  const std::optional<PackRecord>& record() const { return record_; }  // progress of an earlier run
  std::filesystem::path record_path() const;

  // Saves the record after all its data is on the disk; `lines` lists the shards that became full.
  // Throws DataError if OUT.tmp was removed, moved or replaced.
  void save(PackRecord record, std::string_view lines);
  void commit();                      // renames the dataset to OUT; throws as save() does
  void abandon() { saved_ = false; }  // marks the progress as not worth keeping

 private:
  void lock();
  void check() const;
  bool is_ours() const noexcept;
  void unlock();
  void remove();
  void find_record();
  void read_list();
  void remove_unfinished() const;
  void start();
  void forget() const;

  std::filesystem::path out_, work_;
  Json command_;
  int lock_ = -1;
  bool resumable_ = false, saved_ = false;
  std::optional<PackRecord> record_;
  std::optional<HashedFile> list_;
  std::string kept_;  // end of the finished input, in words
};

}  // namespace lockstep
