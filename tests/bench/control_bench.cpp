// The control plane of a job with many ranks, on this host:
//
//   build/cpu/bench/control_bench [RANKS]          4096 by default; needs 2 open files a rank
//
// Prints the time until all ranks of a real control server have connected, the bytes that they
// receive meanwhile, the time and bytes of an exchange of the places of all ranks, the CPU time of
// the server while all are healthy, and the time from the death of a rank until all others know it.
// Then the bytes of the exchange at 16,384 ranks, the time of agree() at one of them, and the time
// to judge 65,536 ranks of which half are silent.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/hash.h"
#include "core/mix.h"
#include "core/zstd.h"
#include "dist/job/control.h"
#include "dist/job/control_server.h"
#include "dist/job/rank_consistency.h"
#include "dist/topology/topology.h"

namespace lockstep {
namespace {

constexpr Milliseconds kPatience{300'000};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void allow_files(rlim_t count) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(count, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// As the ranks of a start exchange it: hosts with eight GPUs.
std::string place_of(int rank) {
  const int host = rank / 8, gpu = rank % 8;
  const auto address = [](int number) { return str("0000:", 10 + 17 * number, ":00.0"); };
  RankPlace place;
  place.host = str("gpu-node-", host);
  place.gpu = gpu;
  const auto unique = mix64(static_cast<std::uint64_t>(host));
  place.machine = hash_hex(std::as_bytes(std::span(&unique, 1)));
  place.gpu_name = "NVIDIA H100 80GB HBM3";
  place.pci_address = address(gpu);
  place.nvlink_peers.emplace();
  for (int other = 0; other < 8; ++other)
    if (other != gpu) place.nvlink_peers->push_back(address(other));
  place.adapter = str("mlx5_", gpu);
  place.rail = gpu;
  place.numa_node = gpu / 4;
  for (int core = 0; core < 12; ++core)
    place.processors.push_back(12 * gpu + core);
  return to_json(place).dump();
}

// All ranks of a job but the control server. They share a process.
class Ranks {
 public:
  Ranks(int ranks, const Secret& secret, std::uint16_t port)
      : ranks_(ranks), secret_(secret), port_(port) {}

  std::vector<Socket> join_all(Channel channel, int first = 0) const {
    std::vector<Socket> sockets(static_cast<std::size_t>(ranks_));
    std::atomic<int> next = first;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        for (int rank; (rank = next++) < ranks_;)
          sockets[static_cast<std::size_t>(rank)] =
              join({rank, ranks_, {"127.0.0.1"}, port_, secret_, kPatience}, channel,
                   Clock::now() + kPatience);
      });
    threads.clear();
    return sockets;
  }

  // Waits for a frame of this kind at each rank but `without`; returns the bytes that arrived.
  static std::size_t await_all(std::vector<Socket>& sockets, FrameKind kind, int without = -1) {
    Bytes bytes(kPieceBytes);
    std::size_t total = 0;
    for (std::size_t r = 0; r < sockets.size(); ++r) {
      if (static_cast<int>(r) == without || !sockets[r]) continue;
      FrameReader reader;
      for (bool found = false; !found;) {
        const auto count = sockets[r].receive_some(bytes, Clock::now() + kPatience);
        if (count == 0) throw TransientError("the server closed a connection");
        total += count;
        reader.add(std::span(bytes).first(count));
        while (const auto frame = reader.next())
          found |= frame->kind == kind;
      }
    }
    return total;
  }

  void run() const {
    const auto begin = Clock::now();
    std::optional<Control> root;
    std::jthread joins([&] {
      root.emplace(Membership{0, ranks_, {"127.0.0.1"}, port_, secret_, kPatience});
    });
    auto control = join_all(Channel::control, 1);
    auto received = await_all(control, FrameKind::roster);
    joins.join();
    const auto met = seconds_since(begin);
    auto hearts = join_all(Channel::heartbeat);
    received += await_all(hearts, FrameKind::roster);
    std::printf("all %d connected, control     %8.2f s\n", ranks_, met);
    std::printf("all %d connected, both        %8.2f s   (goal at 4,096: 2)\n", ranks_,
                seconds_since(begin));
    std::printf("received by all ranks           %8.1f MB\n", static_cast<double>(received) / 1e6);
    std::fflush(stdout);
    exchange(*root, control);
    const char ready = 'r';
    [[maybe_unused]] auto sent = write(STDIN_FILENO, &ready, 1);
    beat(hearts, 10);
    sent = write(STDIN_FILENO, &ready, 1);
    const int dead = ranks_ / 2;
    const auto death = Clock::now();
    hearts[static_cast<std::size_t>(dead)].shut();
    control[static_cast<std::size_t>(dead)].shut();
    await_all(hearts, FrameKind::verdict, dead);
    std::printf("a death is known to all         %8.2f s   (goal: 0.5)\n", seconds_since(death));
    std::fflush(stdout);
  }

 private:
  // Rank 0 is a real one. Its answer goes to all.
  static void exchange(Control& root, std::vector<Socket>& sockets) {
    const auto begin = Clock::now();
    std::jthread gathers([&] { root.all_gather("exchange", as_bytes(place_of(0)), kPatience); });
    for (std::size_t r = 1; r < sockets.size(); ++r) {
      Bytes frame;
      append(frame, {.kind = FrameKind::message,
                     .peer = 0,
                     .tag = "all_gather exchange",
                     .body = as_bytes(place_of(static_cast<int>(r)))});
      sockets[r].send_all(frame, Clock::now() + kPatience);
    }
    const auto received = await_all(sockets, FrameKind::message);
    std::printf("exchange of all places          %8.2f s   %.1f KB to each rank\n",
                seconds_since(begin),
                static_cast<double>(received) / 1e3 / static_cast<double>(sockets.size()));
    std::fflush(stdout);
  }

  // Each rank sends a beat a second, spread over the second.
  static void beat(std::vector<Socket>& hearts, int seconds) {
    Beat beat;
    beat.watched = true;
    beat.activity.step = 10;
    beat.activity.collectives = 100;
    beat.activity.collective = Activity::name("all_gather (shard gathers)");
    beat.activity.unit = Activity::name("layer 17");
    Bytes frame, bytes(kPieceBytes);
    append(frame, {.kind = FrameKind::beat, .body = encode(beat)});
    constexpr std::size_t kSlices = 50;
    auto next = Clock::now();
    for (int second = 0; second < seconds; ++second)
      for (std::size_t slice = 0; slice < kSlices; ++slice) {
        for (std::size_t r = slice; r < hearts.size(); r += kSlices) {
          hearts[r].try_send(frame);
          hearts[r].try_receive(bytes);
        }
        next += Milliseconds(1000 / kSlices);
        std::this_thread::sleep_until(next);
      }
  }

  int ranks_;
  Secret secret_;
  std::uint16_t port_;
};

void bench_server(int ranks) {
  int to_ranks[2], from_ranks[2];
  if (pipe(to_ranks) != 0 || pipe(from_ranks) != 0) std::abort();
  const auto secret = Secret::draw();
  const pid_t child = fork();
  if (child == 0) {
    try {
      allow_files(static_cast<rlim_t>(2 * ranks + 256));
      std::uint16_t port = 0;
      if (read(to_ranks[0], &port, sizeof port) != sizeof port) _exit(1);
      dup2(from_ranks[1], STDIN_FILENO);
      Ranks(ranks, secret, port).run();
      _exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
  }
  close(from_ranks[1]);
  const ControlServer server({.ranks = ranks,
                              .secret = secret,
                              .address = "127.0.0.1",
                              .start = kPatience,
                              .handshake = Milliseconds(60'000),
                              .timing = {.missed = 300}});  // ranks may starve on a busy host
  const auto port = server.port();
  [[maybe_unused]] const auto written = write(to_ranks[1], &port, sizeof port);
  char ready = 0;
  if (read(from_ranks[0], &ready, 1) == 1) {
    const auto before = cpu_seconds();
    const auto began = Clock::now();
    if (read(from_ranks[0], &ready, 1) == 1)
      std::printf("CPU of the server, all healthy  %8.2f %%  (goal: 5)\n",
                  100 * (cpu_seconds() - before) / seconds_since(began));
    std::fflush(stdout);
  }
  waitpid(child, nullptr, 0);
}

// One rank of a job whose other ranks say the same.
class EchoWorld final : public World {
 public:
  explicit EchoWorld(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::unique_ptr<Communicator> connect(const GroupConfig&) override { return nullptr; }
  std::vector<std::string> exchange(const std::string& mine) override {
    return std::vector<std::string>(static_cast<std::size_t>(size_), mine);
  }
  void abort(const std::string&, int) noexcept override {}

 private:
  int size_;
};

void bench_exchange() {
  constexpr int kRanks = 16'384;
  BodyWriter places;
  for (int rank = 0; rank < kRanks; ++rank)
    places.text(place_of(rank));
  const auto all = places.take();
  const auto begin = Clock::now();
  const auto sent = zstd_compressed(all).size();
  std::printf(
      "exchange of 16,384 places       %8.2f s to compress; %.0f KB to each rank, %.1f GB in all, "
      "%.0f GB uncompressed\n",
      seconds_since(begin), static_cast<double>(sent) / 1e3,
      static_cast<double>(sent) * kRanks / 1e9, static_cast<double>(all.size()) * kRanks / 1e9);
}

void bench_agree() {
  Fields fields;
  for (int i = 0; i < 150; ++i)
    fields.emplace_back(str("table.some_key_", i), str("value ", i));
  EchoWorld world(16'384);
  const auto begin = Clock::now();
  agree(world, "configuration", fields);
  std::printf("agree() of 16,384 ranks         %8.3f s   (goal: 0.1)\n", seconds_since(begin));
}

void bench_detector() {
  constexpr int kRanks = 65'536;
  FailureDetector detector(kRanks, {});
  Beat beat;
  beat.watched = true;
  beat.activity.step = 10;
  beat.activity.collectives = 100;
  beat.activity.inside = true;
  const auto now = Clock::now();
  for (int rank = 0; rank < kRanks; ++rank) {
    detector.introduce(rank, {.host = str("n", rank / 8), .pid = rank});
    detector.joined(rank, now);
    beat.activity.collectives = rank % 16 < 8 ? 100 : 99;
    detector.beat(rank, beat, rank % 16 < 8 ? now + Milliseconds(6000) : now);
  }
  auto begin = Clock::now();
  const bool healthy = !detector.verdict(now + Milliseconds(900)).has_value();
  std::printf("verdict, 65,536 healthy         %8.4f s%s\n", seconds_since(begin),
              healthy ? "" : "   WRONG: not healthy");
  begin = Clock::now();
  const auto verdict = detector.verdict(now + Milliseconds(6000));
  std::printf("verdict, half of them silent    %8.4f s   (goal: 0.05)  %zu lost, %zu bytes\n",
              seconds_since(begin), verdict ? verdict->lost.size() : 0,
              verdict ? verdict->text.size() : 0);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::bench_server(argc > 1 ? std::atoi(argv[1]) : 4096);
  lockstep::bench_exchange();
  lockstep::bench_agree();
  lockstep::bench_detector();
  return 0;
}
