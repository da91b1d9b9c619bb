// File provides bounded reading and durable writing. Every error names the file, the offset and the
// remedy. Reading checks sizes that a file states. A file is written completely or not at all.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/function_ref.h"
#include "core/stream.h"

namespace lockstep {

// Throws `text` as an error whose type depends on errno: DataError if the file does not exist,
// RefusedError without permission, AccessError if a retry cannot succeed (for example a loop of
// links), and StorageError otherwise.
[[noreturn]] void throw_io_error(int error, const std::string& text);
// Throws "PATH: WHAT: REASON", with a remedy if one is known, as throw_io_error() does. `room`: the
// remedy for a full disk.
[[noreturn]] void fail_io(const std::filesystem::path& path, const std::string& what, int error,
                          std::string_view room = "free some space or choose another directory");

// True if `path` names the open file `descriptor`; false after it was removed, moved or replaced.
// Throws as fail_io() does if the check fails.
bool is_named(int descriptor, const std::filesystem::path& path);

// Queries of paths. Each throws as fail_io() does if the query fails, for example if a parent
// directory may not be entered.
bool path_exists(const std::filesystem::path& path);
bool directory_exists(const std::filesystem::path& path);
std::vector<std::filesystem::path> directory_entries(
    const std::filesystem::path& directory);  // sorted; DataError if it does not exist

// ReadFile reads a file with pread, so that threads may share it, and a truncated file causes an
// error instead of a signal.
class ReadFile {
 public:
  // Throws DataError if the file does not exist or is not a regular file. Throws as fail_io() does
  // if it cannot be opened.
  explicit ReadFile(std::filesystem::path path);
  // Takes ownership of an open descriptor; `path` is its name in errors.
  ReadFile(int descriptor, std::filesystem::path path);
  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&&) = delete;
  ~ReadFile();

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size_bytes() const { return size_bytes_; }
  int descriptor() const { return descriptor_; }

  // Fills `out` from `offset`. Throws DataError with path and offset if the file is too short, and
  // as fail_io() does if it cannot be read.
  void read(std::span<std::byte> out, std::int64_t offset) const;

  // Asks the system to drop the file from the page cache, so that the next read comes from disk.
  // Only fsynced data are dropped.
  void drop_cache() const;

  [[noreturn]] void fail(std::int64_t offset,
                         const std::string& what) const;  // "PATH: at byte N: .."

 private:
  void look();

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_bytes_ = 0;
};

std::string read_text(const std::filesystem::path& path, std::int64_t most_bytes);
std::string read_text(const ReadFile& file, std::int64_t most_bytes);
// Calls act(line) for each line that ends in '\n', without the '\n', until act() returns false.
void for_each_line(const ReadFile& file, FunctionRef<bool(std::string_view line)> act);
// The last line that ends in a newline, without the newline. nullopt if the file does not exist or
// has no such line, or if the line is longer than `most_bytes`.
std::optional<std::string> last_line(const std::filesystem::path& path, std::int64_t most_bytes);

// Raises the limit of open files to `count` + 256, as far as the system allows. If the limit is too
// low, opening a file reports it.
void allow_open_files(std::size_t count);

// OpenFilesRoom reserves open files of this process: half of those that the limit leaves, at least
// `least` and at most `most`. Thread-safe.
class OpenFilesRoom {
 public:
  OpenFilesRoom(std::size_t least, std::size_t most);
  OpenFilesRoom(const OpenFilesRoom&) = delete;
  OpenFilesRoom& operator=(const OpenFilesRoom&) = delete;
  ~OpenFilesRoom();  // frees the reservation
  std::size_t count() const { return count_; }

 private:
  std::size_t count_;
};

// RangeWriter writes ranges of a file. Other processes of this host may write other ranges at the
// same time. Throws as fail_io() does if a write fails: StorageError if the disk is full. It never
// retries a failed fsync on the same file.
class RangeWriter {
 public:
  // direct: bypasses the page cache, for large files that are not read soon. It takes a tenth of
  // the CPU time and keeps the cache unchanged. It accepts the next 4 MiB while it writes 4 MiB. If
  // the file system does not support it, writes are cached.
  enum class Way : std::uint8_t { cached, direct };
  static constexpr std::int64_t kDirectBytes = std::int64_t{8} << 20;  // memory for Way::direct
  enum class Start : std::uint8_t { empty, shared };  // shared: keeps existing contents

  // Creates the file if it does not exist, and starts at byte 0. `shown`: its name in errors.
  RangeWriter(const std::filesystem::path& path, std::filesystem::path shown, Way way, Start start);
  RangeWriter(const RangeWriter&) = delete;
  RangeWriter& operator=(const RangeWriter&) = delete;
  ~RangeWriter();

  // Writes at the current offset. A later call may throw the error of a write.
  void write(std::span<const std::byte> bytes);
  void seek(std::int64_t offset);  // sets the offset of the next write
  void commit();                   // returns when all bytes are on disk

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Buffer = std::unique_ptr<std::byte, Free>;
  static Buffer make_buffer();

  void put(std::span<const std::byte> bytes, std::int64_t at);
  void put_behind();
  void put_rest();
  void set_direct(bool direct);

  std::filesystem::path shown_;
  int descriptor_ = -1;
  std::int64_t offset_ = 0;  // offset of the next put(): the first byte of filling_
  std::size_t unsynced_bytes_ = 0;
  bool may_be_direct_ = false, is_direct_ = false;
  Buffer filling_, going_;  // Way::direct: buffer that is filled, and buffer that is written
  std::size_t filled_bytes_ = 0;
  std::optional<Stream> behind_;  // writes going_
  Event gone_;
};

// WriteFile writes a file that gets its name in commit(). It writes PATH.tmp-PID; commit() fsyncs,
// closes and renames it, and fsyncs the directory. Without commit() the destructor removes it. If
// PATH is a symbolic link, its target is replaced. Throws as RangeWriter does, and if PATH exists
// and is not a regular file.
class WriteFile {
 public:
  explicit WriteFile(std::filesystem::path path);
  WriteFile(const WriteFile&) = delete;
  WriteFile& operator=(const WriteFile&) = delete;
  ~WriteFile();

  void write(std::span<const std::byte> bytes);                          // appends
  void write_at(std::span<const std::byte> bytes, std::int64_t offset);  // overwrites
  std::int64_t size_bytes() const { return size_bytes_; }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  std::optional<RangeWriter> writer_;  // until commit()
  std::int64_t size_bytes_ = 0;
};

// Each of these throws as fail_io() does on failure.
// Writes a text with WriteFile and commits it, or writes it to a pipe or a character device.
void write_text(const std::filesystem::path& path, std::string_view text);
void make_directories(const std::filesystem::path& directory);  // synced; they may already exist
// Creates a directory, synced to disk. The parent must exist, so a removed parent is not recreated.
void make_directory(const std::filesystem::path& directory);
void remove_tree(const std::filesystem::path& path);          // may already be absent
void sync_directory(const std::filesystem::path& directory);  // fsync of its entries; "" means .
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep
