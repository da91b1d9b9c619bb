// checkpoint_bench [DIRECTORY [MIB [partner]]]: times saving and loading a state of MIB MiB
// (default 1024) on the disk of DIRECTORY (default: the working one), beside the plain writing and
// reading of as many bytes in the same round. Each best and median of rounds, as is the ratio of
// the two. With `partner`, only the last two.
//
//   hash        XXH3-128 of what is in memory
//   save        Checkpointer: hashed, written past the page cache, synced, renamed
//   plainly     the same bytes by pwrite with O_DIRECT, 4 MiB at once, and fsync
//   load        Checkpointer, from the disk: read, hashed, and put where it belongs
//   plainly     the file that was written plainly read by 4 MiB, from the disk: like the other it
//               was not read before, of which a disk's own cache makes much
//   verify      from the disk, once more
//   restore     HostRestore: a rank on a host that lost its files gets all of them over TCP, from
//               the memory of its partner (in /dev/shm), hashed, and put where they belong
//   plainly     the same file read, sent over TCP and received, and nothing else
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <unistd.h>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "checkpoint/host_restore.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/hash.h"
#include "dist/job/socket.h"
#include "tests/support/thread_world.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 5;
constexpr std::size_t kPiece = std::size_t{4} << 20;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void report(const char* what, std::int64_t bytes, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto gigabytes = static_cast<double>(bytes) / 1e9;
  std::printf("%-28s best %7.3f GB/s   median %7.3f GB/s\n", what, gigabytes / seconds.front(),
              gigabytes / seconds[seconds.size() / 2]);
}

void report_ratio(const char* what, const std::vector<double>& plain,
                  const std::vector<double>& ours) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < plain.size(); ++i)
    ratios.push_back(plain[i] / ours[i]);
  std::sort(ratios.rbegin(), ratios.rend());
  std::printf("%-28s best %7.2f        median %7.2f\n", what, ratios.front(),
              ratios[ratios.size() / 2]);
}

void write_plainly(const fs::path& path, std::int64_t bytes) {
  const std::unique_ptr<std::byte, decltype(&std::free)> piece(
      static_cast<std::byte*>(std::aligned_alloc(4096, kPiece)), &std::free);
  std::fill_n(piece.get(), kPiece, std::byte{7});
  int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0666);
  if (file < 0) file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  LOCKSTEP_CHECK(file >= 0, "cannot create ", path.string());
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(kPiece))
    LOCKSTEP_CHECK(pwrite(file, piece.get(), kPiece, at) == static_cast<ssize_t>(kPiece),
                   "cannot write ", path.string());
  LOCKSTEP_CHECK(fsync(file) == 0, "cannot sync ", path.string());
  close(file);
}

void read_plainly(const fs::path& path) {
  const ReadFile file(path);
  file.drop_cache();
  std::vector<std::byte> piece(kPiece);
  for (std::int64_t at = 0; at < file.size_bytes(); at += static_cast<std::int64_t>(piece.size()))
    file.read(std::span(piece).first(static_cast<std::size_t>(std::min<std::int64_t>(
                  static_cast<std::int64_t>(piece.size()), file.size_bytes() - at))),
              at);
}

void bench(const fs::path& directory, std::int64_t bytes) {
  constexpr int kTensors = 32;
  const auto elements = bytes / kTensors / 4;
  Arena arena(Device{}, Arena::Memory::pinned_host, bytes + (std::int64_t{1} << 20));
  std::vector<StateSlice> state;
  for (int i = 0; i < kTensors; ++i) {
    state.push_back(whole_slice(str("tensor_", i), arena.allocate("w", DType::fp32, {elements})));
    auto* values = state.back().local.as<float>();
    for (std::int64_t j = 0; j < elements; ++j)
      values[j] = static_cast<float>(i + j);
  }
  Checkpointer checkpointer(directory / "checkpoints", state);
  const auto file = checkpoint_path(directory / "checkpoints", 1) / "rank-00000.safetensors";
  std::vector<double> hashing, saving, writing, loading, verifying, reading;
  for (int round = 0; round < kRounds; ++round) {
    hashing.push_back(seconds_of([&] {
      for (const auto& slice : state)
        hash_hex(std::span<const std::byte>(slice.local.data,
                                            static_cast<std::size_t>(slice.local.bytes())));
    }));
    fs::remove_all(checkpoint_path(directory / "checkpoints", 1));
    saving.push_back(seconds_of([&] { checkpointer.save(1, Json::Object{}); }));
    fs::remove(directory / "plain");
    writing.push_back(seconds_of([&] { write_plainly(directory / "plain", bytes); }));
    ReadFile(file).drop_cache();
    loading.push_back(seconds_of([&] { checkpointer.load(1); }));
    reading.push_back(seconds_of([&] { read_plainly(directory / "plain"); }));
    verifying.push_back(seconds_of([&] {
      verify_checkpoint(checkpoint_path(directory / "checkpoints", 1), Depth::contents,
                        /*from_disk=*/true);
    }));
  }
  std::printf("%lld MB, %d rounds\n", static_cast<long long>(bytes / 1'000'000), kRounds);
  report("hash", bytes, hashing);
  report("save", bytes, saving);
  report("write plainly", bytes, writing);
  report_ratio("  save / plain writing", writing, saving);
  report("load", bytes, loading);
  report("verify", bytes, verifying);
  report("read plainly", bytes, reading);
  report_ratio("  load / plain reading", reading, loading);
}

void send_plainly(const fs::path& path) {
  const ReadFile file(path);
  const Socket listener = listen_at("127.0.0.1", 0);
  constexpr std::size_t kSent = std::size_t{128} << 10;
  std::thread sender([&] {
    wait_for(listener, false, Deadline::max());
    auto socket = accept_from(listener);
    std::vector<std::byte> piece(kSent);
    for (std::int64_t at = 0; at < file.size_bytes(); at += static_cast<std::int64_t>(kSent)) {
      const auto bytes = std::span(piece).first(static_cast<std::size_t>(
          std::min<std::int64_t>(static_cast<std::int64_t>(kSent), file.size_bytes() - at)));
      file.read(bytes, at);
      socket->send_all(bytes, Deadline::max());
    }
  });
  Socket socket = connect_to("127.0.0.1", listener.port(), Deadline::max());
  std::vector<std::byte> piece(kSent);
  while (socket.receive_some(piece, Deadline::max()) > 0) {
  }
  sender.join();
}

// Two hosts, each with one rank. The second has `bytes`, and has lost its files.
void bench_partner(std::int64_t bytes) {
  const fs::path directory = str("/dev/shm/checkpoint-bench-", getpid());
  constexpr int kTensors = 32;
  std::vector<double> saving, restoring, sending;
  run_thread_ranks(2, [&](World& world) {
    const int rank = world.rank();
    const auto elements = rank == 0 ? 8 : bytes / kTensors / 4;
    Arena arena(Device{}, Arena::Memory::pinned_host,
                elements * 4 * kTensors + (std::int64_t{1} << 20));
    std::vector<StateSlice> state;
    for (int i = 0; i < 2 * kTensors; ++i) {
      const bool is_mine = i / kTensors == rank;
      if (!is_mine) continue;
      state.push_back(whole_slice(str("tensor_", i), arena.allocate("w", DType::fp32, {elements})));
      std::fill_n(state.back().local.as<float>(), elements, static_cast<float>(i));
    }
    // Each rank's state also names the tensors of the other one, without elements of them.
    for (int i = 0; i < 2 * kTensors; ++i) {
      if (i / kTensors == rank) continue;
      const auto others = rank == 1 ? 8 : bytes / kTensors / 4;
      const Shape whole{others};
      state.push_back({.name = str("tensor_", i),
                       .whole = whole,
                       .split = unsplit(whole),
                       .piece = {0, 0, 0},
                       .local = arena.allocate("none", DType::fp32, {0}),
                       .owned = false});
    }
    const HostRanks machine{.ranks = {rank}, .own_directory = true, .partners = true};
    const auto local = directory / str("host-", rank);
    Checkpointer checkpointer(local, state, {.last = 1}, &world, machine);
    const double saved = seconds_of([&] { checkpointer.save(1, Json::Object{}); });
    if (rank == 1) {
      saving.push_back(saved);
      fs::remove_all(local);
    }
    for (int round = 0; round < kRounds; ++round) {
      world.exchange("");
      HostRestore restore(world, local, directory / "shared", machine);
      const double took = seconds_of([&] {
        const auto found = restore.find({}).at(0);
        restore.load(found, state, [](const Json&) {});
      });
      if (rank == 1) {
        restoring.push_back(took);
        LOCKSTEP_CHECK(state[1].local.as<float>()[elements - 1] == kTensors + 1, "wrong values");
        sending.push_back(seconds_of([&] {
          send_plainly(checkpoint_path(directory / "host-0", 1) / "rank-00001.safetensors");
        }));
      }
    }
  });
  fs::remove_all(directory);
  report("save to memory and partner", bytes, saving);
  report("restore from a partner", bytes, restoring);
  report("send plainly", bytes, sending);
  report_ratio("  restore / plain sending", sending, restoring);
  std::printf("restore from a partner       best %7.3f s\n", *std::ranges::min_element(restoring));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) try {
  namespace fs = std::filesystem;
  const auto parent = argc > 1 ? fs::path(argv[1]) : fs::path(".");
  const std::int64_t mib = argc > 2 ? std::atoll(argv[2]) : 1024;
  const auto directory = parent / lockstep::str("checkpoint-bench-", getpid());
  fs::create_directories(directory);
  if (argc < 4) lockstep::bench(directory, mib << 20);
  lockstep::bench_partner(mib << 20);
  fs::remove_all(directory);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "checkpoint_bench: %s\n", error.what());
  return 1;
}
