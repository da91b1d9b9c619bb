#include "launch/preflight/storage_check.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/file.h"
#include "core/progress.h"
#include "core/system/machine.h"

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
    using Writer = RangeWriter;
    writer_.emplace(shown, shown, Writer::Way::direct, Writer::Start::empty);
    reading_ = open(shown.c_str(), O_RDONLY | O_CLOEXEC);
    const int reason = errno;
    const int direct = open(shown.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    is_cached_ = direct < 0;
    if (direct >= 0) close(direct);
    unlink(shown.c_str());
    if (reading_ < 0) fail_io(shown, "cannot open", reason);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (reading_ >= 0) close(reading_);
  }

  void write(std::span<const std::byte> piece) {
    writer_->write(piece);
    // Else it were the last sync that takes all the time.
    if (is_cached_ && fdatasync(reading_) != 0) fail_io(shown, "cannot sync", errno);
  }
  void commit() {
    writer_->commit();
    writer_.reset();
  }
  ReadFile read() { return {std::exchange(reading_, -1), shown}; }  // once all is written

  const fs::path shown;  // its name in errors

 private:
  std::optional<RangeWriter> writer_;
  int reading_ = -1;
  bool is_cached_ = false;  // the file system has no other way
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

// The file system: "nfs4 server:/runs" (proc(5), mountinfo). The number of its device is another at
// each mount where there is no disk: only where the system says no more.
std::string storage_of(const fs::path& folder) {
  struct statx status {};
  if (statx(AT_FDCWD, folder.c_str(), 0, STATX_MNT_ID, &status) != 0) return "";
  const auto mount = str(status.stx_mnt_id);
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string id, word, type, source;
    words >> id;
    while (words >> word && word != "-") {
    }
    if (id == mount && words >> type >> source) return str(type, " ", source);
  }
  return str("device ", status.stx_dev_major, ":", status.stx_dev_minor);
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

Written write_words(Scratch& scratch, std::int64_t bytes, double most_seconds) {
  Stopwatch watch;
  std::vector<std::byte> piece(kPiece);
  std::int64_t at = 0;
  while (at == 0 || (at < bytes && watch.seconds() < most_seconds)) {
    fill_piece(piece, at);
    watch.time([&] { scratch.write(piece); });
    at += kPiece;
    made_progress();
  }
  watch.time([&] { scratch.commit(); });
  return {at, static_cast<double>(at) / watch.seconds()};
}

// Bytes a second of those, or of as many as there is time for.
double read_words(Scratch& scratch, std::int64_t bytes, double most_seconds) {
  const ReadFile file = scratch.read();
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
                     .of = storage_of(scratch)},
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
