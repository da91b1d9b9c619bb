// CacheDirectory stores shards on a local disk, each in a file named by its XXH3-128. All users of
// the same bytes share one file, and a file with that name is complete. Processes and runs of a
// host may share a directory. Its state is only on the disk and in flock(2), so a killed process
// leaves no stale locks:
//
//   lock       held while room is made, and while files are named, renamed or removed
//   HASH       a shard; each process that has it open holds a shared lock, and it is not removed
//   HASH.part  a shard that is being fetched; the fetching process holds the lock. The bytes of the
//              shard are followed by a list of the 1 MiB blocks that are present, so that another
//              process may resume it
//
// The least recently used file is removed first, including .part files. Files with other names are
// not touched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/function_ref.h"
#include "data/remote/remote.h"

namespace lockstep {

// PartFile is HASH.part, locked by this process. Threads may write different ranges of it.
class PartFile {
 public:
  static constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;

  PartFile(std::filesystem::path whole, Descriptor part, std::int64_t bytes);
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Returns the size of the file with its list of blocks.
  static std::int64_t file_bytes(std::int64_t bytes);

  std::vector<ByteRange> missing() const;  // whole blocks, in order; adjacent ones are joined
  // Writes bytes of a range that starts at a block and is written in order. Throws as fail_io()
  // does, for example if the disk is full.
  void write(std::span<const std::byte> bytes, std::int64_t offset);
  void read(std::span<std::byte> out, std::int64_t offset) const;
  void forget();  // marks all blocks as missing
  // Completes the file after all blocks were written and verified: renames it and returns a
  // descriptor with a lock, as CacheDirectory::open does.
  Descriptor keep();
  void remove();

 private:
  void put(std::span<const std::byte> bytes, std::int64_t offset) const;
  std::int64_t blocks() const { return (bytes_ + kBlockBytes - 1) / kBlockBytes; }

  std::filesystem::path whole_, path_;
  Descriptor file_;
  std::int64_t bytes_;
  mutable std::mutex mutex_;
  std::vector<std::uint8_t> present_;  // one bit per block
};

class CacheDirectory {
 public:
  // Returns whether a shard may be removed now. Before it returns true it closes the shard.
  using MayGo = FunctionRef<bool(const std::string& hash)>;

  // Creates the directory. most_bytes of 0 means half of the free space and of the bytes in the
  // cache. Throws AccessError if the directory cannot be created or written, or does not support
  // flock.
  CacheDirectory(std::filesystem::path path, std::int64_t most_bytes);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t most_bytes() const { return most_bytes_; }

  // Opens a shard, marks it as used now, and keeps it while it is open. Returns an empty descriptor
  // if it is missing or has another size.
  Descriptor open(const std::string& hash, std::int64_t bytes) const;

  enum class Taken : std::uint8_t { here, elsewhere, whole, no_room };
  // Starts or resumes fetching a shard; removes one of another size. elsewhere: another process is
  // fetching it. Throws AccessError if the disk is full, or if the shard is larger than the cache.
  Taken take(const std::string& hash, std::int64_t bytes, MayGo may_go,
             std::unique_ptr<PartFile>& part);

  std::int64_t evicted() const { return evicted_; }

 private:
  struct Entry;
  std::vector<Entry> entries() const;  // least recently used first
  bool make_room(std::int64_t bytes, MayGo may_go, const std::string& besides);
  bool remove(const Entry& entry, MayGo may_go);
  bool is_whole(const std::string& hash, std::int64_t bytes) const;
  void reserve(const Descriptor& part, std::int64_t bytes, MayGo may_go, const std::string& hash);

  std::filesystem::path path_;
  std::int64_t most_bytes_;
  std::atomic<std::int64_t> evicted_{0};
};

}  // namespace lockstep
