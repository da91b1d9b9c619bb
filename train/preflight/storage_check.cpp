#include "train/preflight/storage_check.h"

#include <algorithm>
#include <unistd.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/machine.h"
#include "core/progress.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Unit = Finding::Unit;

constexpr std::int64_t kPiece = 4 * kMiB;

// A file that goes with it.
struct Scratch {
  fs::path path;
  ~Scratch() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
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

// Bytes of this rank's file: a node's are divided among its ranks.
std::int64_t bytes_of_file(const PreflightRank& rank) {
  const auto ranks = std::ssize(machine_ranks(rank.topology, rank.world.rank()));
  const auto of_node = bytes_within(rank.compute, (rank.on_gpus() ? 1024 : 128) * kMiB);
  return std::max(of_node / ranks / kPiece, std::int64_t{2}) * kPiece;
}

// The bytes of a file: their hash, and how fast they went.
struct Passed {
  std::string hash;
  double bytes_per_second = 0;
};

Passed write_words(const fs::path& path, std::int64_t bytes) {
  Hasher hasher;
  Stopwatch watch;
  std::vector<std::byte> piece(kPiece);
  RangeWriter writer(path, path, RangeWriter::Way::direct, RangeWriter::Start::empty);
  for (std::int64_t at = 0; at < bytes; at += kPiece) {
    fill_words(piece, static_cast<std::uint64_t>(at / kPiece) + 1);
    hasher.add(piece);
    watch.time([&] { writer.write(piece); });
    made_progress();
  }
  watch.time([&] { writer.commit(); });
  return {hasher.hex(), static_cast<double>(bytes) / watch.seconds()};
}

Passed read_words(const fs::path& path, std::int64_t bytes) {
  const ReadFile file(path);
  file.drop_cache();
  Hasher hasher;
  Stopwatch watch;
  std::vector<std::byte> piece(kPiece);
  for (std::int64_t at = 0; at < bytes; at += kPiece) {
    watch.time([&] { file.read(piece, at); });
    hasher.add(piece);
    made_progress();
  }
  return {hasher.hex(), static_cast<double>(bytes) / watch.seconds()};
}

}  // namespace

StorageRates check_storage(PreflightRank& rank, const fs::path& scratch) {
  const auto bytes = bytes_of_file(rank);
  const Scratch file{scratch / str("preflight-", host_name(), "-", getpid(), ".tmp")};
  const auto check = [&](const char* what, const std::function<double()>& rate) {
    return rank.add(
        {.check = what, .unit = Unit::bytes_per_second, .tolerance = rank.tolerances().storage},
        [&](Finding& f) { f.value = rate(); });
  };
  std::string written;
  StorageRates rates;
  rates.write = check("storage, written", [&] {
    if (!directory_exists(scratch))
      throw ConfigError(str("--scratch ", scratch.string(), ": no such folder"));
    const auto passed = write_words(file.path, bytes);
    written = passed.hash;
    return passed.bytes_per_second;
  });
  rates.read = check("storage, read", [&] {
    const auto passed = read_words(file.path, bytes);
    if (passed.hash != written)
      throw TransientError(str(file.path.string(), ": other bytes than were written"));
    return passed.bytes_per_second;
  });
  return rates;
}

}  // namespace lockstep
