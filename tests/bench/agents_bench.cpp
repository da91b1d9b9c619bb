// The leader of a supervised run with many hosts, on this host:
//
//   build/cpu/bench/agents_bench [HOSTS]           2048 by default; needs 2 open files a host
//
// Prints, for a real leader and simulated agents that report eight ranks each:
//   - the time until all agents have connected, and until the leader has started all ranks;
//   - the CPU time of the leader while the ranks train;
//   - the time from the reports of a failure until all ranks are started again;
//   - the time from the reports of a complete run until all agents know that it is over.
// The agents share a thread.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <poll.h>
#include <thread>

#include "core/file.h"
#include "dist/job/control.h"
#include "launch/supervise/leader_server.h"

namespace lockstep {
namespace {

constexpr Milliseconds kPatience{300'000}, kBeat{500};
constexpr int kSlots = 8;

double cpu_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// It reports ranks that do not exist.
struct FakeAgent {
  Socket socket{};
  FrameReader reader{};
  HostPlace place{};
  bool is_over = false;

  void send(const FromAgent& message) {
    Bytes bytes;
    append(bytes, {.kind = FrameKind::message, .body = as_bytes(encode(message))});
    socket.send_all(bytes, Clock::now() + kPatience);
  }
};

class Agents {
 public:
  Agents(int hosts, std::uint16_t port, const Secret& secret)
      : agents_(static_cast<std::size_t>(hosts)) {
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (std::size_t i; (i = next++) < agents_.size();) {
          agents_[i].socket = join({.addresses = {"127.0.0.1"}, .port = port, .secret = secret},
                                   Channel::agents, Clock::now() + kPatience);
          const auto host = str("gpu-node-", i);
          agents_[i].send(Join{.id = host, .host = host, .slots = kSlots});
        }
      });
  }

  // Answers the leader, and sends beats, until the condition holds. Returns the seconds.
  double run_until(FunctionRef<bool()> is_done) {
    const auto begin = Clock::now();
    std::vector<pollfd> polled(agents_.size());
    for (std::size_t i = 0; i < agents_.size(); ++i)
      polled[i] = {.fd = agents_[i].socket.descriptor(), .events = POLLIN, .revents = 0};
    while (!is_done()) {
      if (Clock::now() - begin > kPatience) throw TransientError("the leader does not answer");
      poll(polled.data(), polled.size(), 5);
      for (std::size_t i = 0; i < agents_.size(); ++i)
        if (polled[i].revents != 0) receive(agents_[i]);
      const auto until = static_cast<std::size_t>((Clock::now() - began_) / (kBeat / kSlices));
      for (; slice_ < until; ++slice_)  // beats are spread over their interval
        for (std::size_t i = slice_ % kSlices; i < agents_.size(); i += kSlices)
          if (!agents_[i].is_over) agents_[i].send(AgentBeat());
    }
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  // Whether all ranks of an attempt after this one have started.
  bool have_started(std::int64_t after) const {
    return std::ranges::all_of(agents_, [&](auto& one) { return one.place.attempt > after; });
  }
  bool are_over() const { return std::ranges::all_of(agents_, &FakeAgent::is_over); }
  std::int64_t attempt() const { return agents_.front().place.attempt; }

  // Each agent reports that its ranks ended with this code.
  void end(int exit_code, const std::string& error) {
    for (auto& agent : agents_) {
      Ended ended{.attempt = agent.place.attempt, .all = true};
      for (int rank = 0; rank < kSlots; ++rank)
        ended.ranks.push_back({.rank = agent.place.number * kSlots + rank,
                               .exit_code = exit_code,
                               .error = error,
                               .lost = error.empty() ? std::vector<std::string>()
                                                     : std::vector<std::string>{"gpu-node-7"}});
      agent.send(ended);
    }
  }

 private:
  static void receive(FakeAgent& agent) {
    std::array<std::byte, 4096> bytes;
    const auto count = agent.socket.try_receive(bytes);
    if (!count && !agent.is_over) throw TransientError("the leader closed a connection");
    if (!count || *count == 0) return;
    agent.reader.add(std::span(bytes).first(*count));
    while (const auto frame = agent.reader.next()) {
      if (frame->kind != FrameKind::message) continue;
      const auto message = decode_from_leader(std::string(as_text(frame->body)));
      if (const auto* prepare = std::get_if<Prepare>(&message))
        agent.send(Ready{.attempt = prepare->attempt, .addresses = {"127.0.0.1"}, .port = 1});
      else if (const auto* start = std::get_if<Start>(&message))
        agent.place = start->place;
      else if (std::holds_alternative<Over>(message))
        agent.is_over = true;
    }
  }

  static constexpr std::size_t kSlices = 50;
  std::vector<FakeAgent> agents_;
  Deadline began_ = Clock::now();
  std::size_t slice_ = 0;
};

void bench(int hosts, const std::filesystem::path& run) {
  allow_open_files(2 * static_cast<std::size_t>(hosts) + 256);
  const SuperviseRecords records(run);
  const auto secret = records.secret();
  write_text(run / "saved_step.txt", "1\n");  // or the leader pauses before the next start
  LeaderServer leader({.need = hosts, .least = hosts, .slots = kSlots}, records, secret, "");
  leader.lead(1, false, false, {});
  const auto begin = Clock::now();
  Agents agents(hosts, leader.port(), secret);
  std::printf("all %d agents connected        %8.2f s\n", hosts,
              std::chrono::duration<double>(Clock::now() - begin).count());
  agents.run_until([&] { return agents.have_started(0); });
  std::printf(
      "all ranks started               %8.2f s   (includes 1 s of waiting for ranks to adopt)\n",
      std::chrono::duration<double>(Clock::now() - begin).count());

  const auto used = [] {
    return cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  };
  constexpr double kSeconds = 10;
  const auto calm = Clock::now() + Milliseconds(static_cast<int>(1000 * kSeconds));
  const auto before = used();
  agents.run_until([&] { return Clock::now() >= calm; });
  std::printf("the leader while they train     %8.1f %%   of a CPU core\n",
              100 * (used() - before) / kSeconds);

  const auto attempt = agents.attempt();
  const auto failure = Clock::now();
  agents.end(75, "the host gpu-node-7 stopped answering");
  agents.run_until([&] { return agents.have_started(attempt); });
  std::printf("from a failure to a new start   %8.2f s\n",
              std::chrono::duration<double>(Clock::now() - failure).count());

  const auto complete = Clock::now();
  agents.end(0, "");
  agents.run_until([&] { return agents.are_over(); });
  std::printf("the end of a complete run       %8.2f s\n",
              std::chrono::duration<double>(Clock::now() - complete).count());
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const auto run = std::filesystem::temp_directory_path() / lockstep::str("agents-", getpid());
  lockstep::bench(argc > 1 ? std::atoi(argv[1]) : 2048, run);
  std::filesystem::remove_all(run);
}
