// File: bounded reading and durable writing. Every failure names the file and the offset, and says
// what to do. Reading never trusts a size that a file claims; writing is complete or not there.
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

// Throws `text` as the error that a failed call on a file is, by its errno: DataError if there is
// no such file, RefusedError if this user has no permission, AccessError if a retry cannot succeed,
// as for a loop of links, and StorageError otherwise.
[[noreturn]] void throw_io_error(int error, const std::string& text);
// Throws "PATH: WHAT: the reason", and what to do if it is known, as throw_io_error() does. `room`:
// what to do where the disk is full.
[[noreturn]] void fail_io(const std::filesystem::path& path, const std::string& what, int error,
                          std::string_view room = "free some space or choose another directory");

// Whether `path` names the open file `descriptor`: false after it was removed, moved or replaced.
// Throws as fail_io() does where the system does not say.
bool is_named(int descriptor, const std::filesystem::path& path);

// What is there. Each throws as fail_io() does where the system does not say, as when a directory
// on the way may not be entered.
bool path_exists(const std::filesystem::path& path);
bool directory_exists(const std::filesystem::path& path);
std::vector<std::filesystem::path> directory_entries(
    const std::filesystem::path& directory);  // sorted; DataError where there is none

// A file opened for reading by pread, so that threads may share it and a truncated file is an
// error, not a signal.
class ReadFile {
 public:
  // Throws DataError when it is not there or not a regular file, else as fail_io() does when it
  // cannot be opened.
  explicit ReadFile(std::filesystem::path path);
  // Takes over an open descriptor; `path` is its name in errors.
  ReadFile(int descriptor, std::filesystem::path path);
  ReadFile(ReadFile&& other) noexcept;
  ReadFile& operator=(ReadFile&&) = delete;
  ~ReadFile();

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size_bytes() const { return size_bytes_; }

  // Fills `out` from `offset`. Throws DataError naming path and offset when the file ends before,
  // and as fail_io() does when it cannot be read.
  void read(std::span<std::byte> out, std::int64_t offset) const;

  // Asks the system to forget what it caches of the file, so that the next read comes from the
  // disk. Only what was fsynced is forgotten.
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
// act(line) for each line that has an end, without it, until act() returns false.
void for_each_line(const ReadFile& file, FunctionRef<bool(std::string_view line)> act);
// The last line that has an end, without it. Nothing where the file is not there, has none, or one
// that is longer.
std::optional<std::string> last_line(const std::filesystem::path& path, std::int64_t most_bytes);

// Lets this process have so many files open beside 256 others, as far as the system does: where
// that is not enough, opening says what is wrong.
void allow_open_files(std::size_t count);

// Room for files that this process has open at once, beside those that others have or were
// promised: half of what the system's limit leaves, at least `least` and at most `most` of them.
// Any threads may have some.
class OpenFilesRoom {
 public:
  OpenFilesRoom(std::size_t least, std::size_t most);
  OpenFilesRoom(const OpenFilesRoom&) = delete;
  OpenFilesRoom& operator=(const OpenFilesRoom&) = delete;
  ~OpenFilesRoom();  // gives it back
  std::size_t count() const { return count_; }

 private:
  std::size_t count_;
};

// Ranges of a file, of which other processes of this machine may write other ranges meanwhile.
// Throws as fail_io() does where they cannot be written: StorageError when the disk is full. A
// failed fsync is never tried again on the same file.
class RangeWriter {
 public:
  // direct: past the page cache, for large files that nobody reads soon: a tenth of the processor's
  // time, and memory stays what it was. While 4 MiB are written the next are taken. Where a file
  // system does not offer it: cached.
  enum class Way : std::uint8_t { cached, direct };
  static constexpr std::int64_t kDirectBytes = std::int64_t{8} << 20;  // of memory, for Way::direct
  enum class Start : std::uint8_t { empty, shared };  // shared: what is in the file stays

  // Creates the file where it is not there; begins at byte 0. `shown`: its name in errors.
  RangeWriter(const std::filesystem::path& path, std::filesystem::path shown, Way way, Start start);
  RangeWriter(const RangeWriter&) = delete;
  RangeWriter& operator=(const RangeWriter&) = delete;
  ~RangeWriter();

  // Behind what was written last. An error may be thrown by a later call.
  void write(std::span<const std::byte> bytes);
  void seek(std::int64_t offset);  // from there on
  void commit();                   // returns when all is on the disk

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
  std::int64_t offset_ = 0;  // of what is put next: the filling buffer's first byte
  std::size_t unsynced_bytes_ = 0;
  bool may_be_direct_ = false, is_direct_ = false;
  Buffer filling_, going_;  // of Way::direct; the second is written, where there is one
  std::size_t filled_bytes_ = 0;
  std::optional<Stream> behind_;  // which writes it
  Event gone_;
};

// A file that gets its name only when commit() returns: written as PATH.tmp-PID, then fsynced,
// closed and renamed, and the directory fsynced. Destroyed without commit, it is removed. A
// symbolic link stays one: what it leads to is replaced. Throws as RangeWriter does, and where PATH
// is neither a file nor free.
class WriteFile {
 public:
  explicit WriteFile(std::filesystem::path path);
  WriteFile(const WriteFile&) = delete;
  WriteFile& operator=(const WriteFile&) = delete;
  ~WriteFile();

  void write(std::span<const std::byte> bytes);                          // at the end
  void write_at(std::span<const std::byte> bytes, std::int64_t offset);  // anywhere before it
  std::int64_t size_bytes() const { return size_bytes_; }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  std::optional<RangeWriter> writer_;  // until commit()
  std::int64_t size_bytes_ = 0;
};

// Each throws as fail_io() does where it cannot be done.
// WriteFile, committed; a pipe or a character device is given the text.
void write_text(const std::filesystem::path& path, std::string_view text);
void make_directories(const std::filesystem::path& directory);  // durably; they may exist already
// Durably, in a directory that is there: what was removed meanwhile is not made again.
void make_directory(const std::filesystem::path& directory);
void remove_tree(const std::filesystem::path& path);          // which may be gone already
void sync_directory(const std::filesystem::path& directory);  // fsync of its entries; "": of .
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep
