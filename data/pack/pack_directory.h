// PackDirectory: where pack works, OUT.tmp, until the dataset takes its name:
//   lock           held by the process that works there
//   command.json   what it was asked for, of which inputs
//   progress.json  a PackRecord, of when a shard was last full
//   shards.jsonl   the full shards, a PackedShard a line; the record says how much of it counts
//   dataset/       what becomes OUT
// What is there when pack is stopped, stays, and the same command goes on; inputs behind the place
// up to which all is written may be others. A directory of that name that holds anything else is
// somebody's, and refused.
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
  // `command`: members that must be the same for going on, and "inputs", a list of {"file", ...} of
  // which those that were read must be. resumable: false where the input cannot
  // be read twice. Throws UsageError where `out` exists, or what is there is of another command, or
  // not of packing, TransientError where another process works there.
  PackDirectory(std::filesystem::path out, Json command, bool resumable);
  PackDirectory(const PackDirectory&) = delete;
  PackDirectory& operator=(const PackDirectory&) = delete;
  ~PackDirectory();  // where nothing can be gone on from, all goes

  static std::filesystem::path work_of(const std::filesystem::path& out);  // OUT.tmp

  std::filesystem::path dataset() const;
  const std::optional<PackRecord>& record() const { return record_; }  // from where to go on
  std::filesystem::path record_path() const;

  // All that the record says is on the disk, shards that became full as lines of the list. Throws
  // DataError where OUT.tmp was removed, moved or replaced since.
  void save(PackRecord record, std::string_view lines);
  void commit();                      // the dataset takes its name; throws as save()
  void abandon() { saved_ = false; }  // there is nothing to go on for

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
  std::string kept_;  // up to where
};

}  // namespace lockstep
