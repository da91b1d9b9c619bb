// CacheDirectory: shards on a local disk, each in a file named by its XXH3-128, so that whoever
// wants the same bytes shares them. What is there under that name is whole. Processes and runs of
// one machine share a directory; its state is on the disk and in flock(2) alone, so that nothing is
// left by one that is killed:
//
//   lock       held while room is made, and while names are given, changed and taken away
//   HASH       a shard; whoever has it open holds a shared lock, and it is not removed
//   HASH.part  one that is coming; whoever brings it holds the lock. Behind the shard's bytes
//   stands
//              which blocks of 1 MiB are there, so that another process may go on with it
//
// What was not used for the longest time goes first, .part too. Other names are left alone.
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

// HASH.part, locked by this process. Threads may write different ranges of it.
class PartFile {
 public:
  static constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;

  PartFile(std::filesystem::path whole, Descriptor part, std::int64_t bytes);
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // The bytes that the file takes with its list of blocks.
  static std::int64_t file_bytes(std::int64_t bytes);

  std::vector<ByteRange> missing() const;  // whole blocks, in order, next to each other joined
  // Of a range that begins with a block and is written in order. Throws as fail_io(), as when the
  // disk is full.
  void write(std::span<const std::byte> bytes, std::int64_t offset);
  void read(std::span<std::byte> out, std::int64_t offset) const;
  void forget();  // all is missing again
  // All is there and right: it gets its name, and a lock as CacheDirectory::open.
  Descriptor keep();
  void remove();

 private:
  void put(std::span<const std::byte> bytes, std::int64_t offset) const;
  std::int64_t blocks() const { return (bytes_ + kBlockBytes - 1) / kBlockBytes; }

  std::filesystem::path whole_, path_;
  Descriptor file_;
  std::int64_t bytes_;
  mutable std::mutex mutex_;
  std::vector<std::uint8_t> present_;  // a bit a block
};

class CacheDirectory {
 public:
  // Whether a shard may be removed now; who answers yes has closed it.
  using MayGo = FunctionRef<bool(const std::string& hash)>;

  // Makes the directory. most_bytes of 0: half of what is free now and of what the cache holds.
  // Throws AccessError where it cannot be made or written, or has no flock.
  CacheDirectory(std::filesystem::path path, std::int64_t most_bytes);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t most_bytes() const { return most_bytes_; }

  // The shard, marked as used now, and kept while it is open. None: it is not there, or has another
  // size.
  Descriptor open(const std::string& hash, std::int64_t bytes) const;

  enum class Taken : std::uint8_t { here, elsewhere, whole, no_room };
  // Begins or goes on to bring a shard; one of another size is removed. elsewhere: another process
  // does. Throws AccessError where the disk is full, or the shard is larger than the cache.
  Taken take(const std::string& hash, std::int64_t bytes, MayGo may_go,
             std::unique_ptr<PartFile>& part);

  std::int64_t evicted() const { return evicted_; }

 private:
  struct Entry;
  std::vector<Entry> entries() const;  // the least recently used first
  bool make_room(std::int64_t bytes, MayGo may_go, const std::string& besides);
  bool remove(const Entry& entry, MayGo may_go);
  bool is_whole(const std::string& hash, std::int64_t bytes) const;
  void reserve(const Descriptor& part, std::int64_t bytes, MayGo may_go, const std::string& hash);

  std::filesystem::path path_;
  std::int64_t most_bytes_;
  std::atomic<std::int64_t> evicted_{0};
};

}  // namespace lockstep
