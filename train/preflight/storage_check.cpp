#include "train/preflight/storage_check.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/file.h"
#include "core/machine.h"
#include "core/progress.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Unit = Finding::Unit;

constexpr std::int64_t kPiece = 4 * kMiB;

// A file without a name: nothing is left of it, however this process ends.
class Scratch {
 public:
  Scratch(const fs::path& folder, int rank)
      : shown(folder / str("preflight-", host_name(), "-", getpid(), "-", rank, ".tmp")) {
    if (!directory_exists(folder))
      throw ConfigError(str("--scratch ", folder.string(), ": no such folder"));
    descriptor_ = open(shown.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor_ < 0)
      throw DataError(str(shown.string(), ": cannot create: ", std::strerror(errno)));
    unlink(shown.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { close(descriptor_); }

  fs::path path() const { return str("/proc/self/fd/", descriptor_); }
  const fs::path shown;  // its name in errors

 private:
  int descriptor_ = -1;
};

// Sums the time of some calls, and not of what is between them.
class Stopwatch {
 public:
  template <class Act>
  void time(const Act& act) {
    const auto begin = Clock::now();
    act();
    seconds_ += seconds_since(begin);
  }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = 0;
};

// Of the file system: "device 8:1".
std::string device_of(const fs::path& folder) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return "";
  return str("device ", major(status.st_dev), ":", minor(status.st_dev));
}

// Bytes of this rank's file: a node's are divided among its ranks.
std::int64_t bytes_of_file(const PreflightRank& rank) {
  const auto ranks = std::ssize(machine_ranks(rank.topology, rank.world.rank()));
  const auto of_node = bytes_within(rank.compute, (rank.on_gpus() ? 1024 : 128) * kMiB);
  return std::max(of_node / ranks / kPiece, std::int64_t{2}) * kPiece;
}

void fill_piece(std::vector<std::byte>& piece, std::int64_t at) {
  fill_words(piece, static_cast<std::uint64_t>(at / kPiece) + 1);
}

// How much was written in the time there is, a piece at least, and how fast.
struct Written {
  std::int64_t bytes = 0;
  double bytes_per_second = 0;
};

Written write_words(const Scratch& scratch, std::int64_t bytes, double most_seconds) {
  Stopwatch watch;
  std::vector<std::byte> piece(kPiece);
  RangeWriter writer(scratch.path(), scratch.shown, RangeWriter::Way::direct,
                     RangeWriter::Start::empty);
  std::int64_t at = 0;
  while (at == 0 || (at < bytes && watch.seconds() < most_seconds)) {
    fill_piece(piece, at);
    watch.time([&] { writer.write(piece); });
    at += kPiece;
    made_progress();
  }
  watch.time([&] { writer.commit(); });
  return {at, static_cast<double>(at) / watch.seconds()};
}

// Bytes a second of those, or of as many as there is time for.
double read_words(const Scratch& scratch, std::int64_t bytes, double most_seconds) {
  const ReadFile file(open(scratch.path().c_str(), O_RDONLY | O_CLOEXEC), scratch.shown);
  file.drop_cache();
  Stopwatch watch;
  std::vector<std::byte> piece(kPiece), written(kPiece);
  std::int64_t at = 0;
  while (at == 0 || (at < bytes && watch.seconds() < most_seconds)) {
    watch.time([&] { file.read(piece, at); });
    fill_piece(written, at);
    if (piece != written)
      throw TransientError(str(scratch.shown.string(), ": other bytes than were written"));
    at += kPiece;
    made_progress();
  }
  return static_cast<double>(at) / watch.seconds();
}

}  // namespace

StorageRates check_storage(PreflightRank& rank, const fs::path& scratch, double most_seconds) {
  const auto bytes = bytes_of_file(rank);
  const auto check = [&](const char* what, const std::function<double()>& rate) {
    return rank.add({.check = what,
                     .unit = Unit::bytes_per_second,
                     .tolerance = rank.tolerances().storage,
                     .of = device_of(scratch)},
                    [&](Finding& f) { f.value = rate(); });
  };
  std::optional<Scratch> file;
  std::int64_t written = 0;
  StorageRates rates;
  rates.write = check("storage, written", [&] {
    file.emplace(scratch, rank.world.rank());
    const auto all = write_words(*file, bytes, most_seconds);
    written = all.bytes;
    return all.bytes_per_second;
  });
  rates.read = check("storage, read", [&] {
    if (written == 0) throw TransientError("nothing was written that could be read");
    return read_words(*file, written, most_seconds);
  });
  return rates;
}

}  // namespace lockstep
