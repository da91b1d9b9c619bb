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

// Scratch is a file that is already unlinked, so it disappears however this process ends.
class Scratch {
 public:
  Scratch(const fs::path& folder, int rank)
      : shown(folder / str("preflight-", host_name(), "-", getpid(), "-", rank, ".tmp")) {
    if (!directory_exists(folder))
      throw ConfigError(str("--scratch ", folder.string(), ": no such directory"));
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
    // Without this sync, the last sync would take all the time.
    if (is_cached_ && fdatasync(reading_) != 0) fail_io(shown, "cannot sync", errno);
  }
  void commit() {
    writer_->commit();
    writer_.reset();
  }
  ReadFile read() { return {std::exchange(reading_, -1), shown}; }  // call after commit()

  const fs::path shown;  // its name in errors

 private:
  std::optional<RangeWriter> writer_;
  int reading_ = -1;
  bool is_cached_ = false;  // the file system does not support O_DIRECT
};

// Stopwatch sums the time of calls, without the time between them.
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

// Name of the file system: "nfs4 server:/runs" (proc(5), mountinfo). The device number is only a
// fallback, because without a disk it differs at each mount.
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

// Size of the file of this rank: the ranks of a host divide its bytes.
std::int64_t bytes_of_file(const PreflightRank& rank) {
  const auto ranks = std::ssize(host_ranks(rank.topology, rank.world.rank()));
  const auto of_node = bytes_within(rank.compute, (rank.on_gpus() ? 1024 : 128) * kMiB);
  return std::max(of_node / ranks / kPiece, std::int64_t{2}) * kPiece;
}

void fill_piece(std::vector<std::byte>& piece, std::int64_t at) {
  fill_words(piece, static_cast<std::uint64_t>(at / kPiece) + 1);
}

// Bytes written in the available time (at least one piece), and their rate.
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

// Reads the written bytes, or as many as the available time allows. Returns bytes per second.
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
      throw TransientError(str(scratch.shown.string(), ": read back other bytes than written"));
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
    if (written == 0) throw TransientError("no data to read, because nothing was written");
    return read_words(*file, written, most_seconds);
  });
  return rates;
}

}  // namespace lockstep
