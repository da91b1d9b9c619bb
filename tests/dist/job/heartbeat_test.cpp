#include "dist/job/heartbeat.h"

#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <regex>
#include <sched.h>

#include "core/file.h"
#include "core/system/machine.h"
#include "tests/dist/job.h"
#include "tests/wording.h"

#ifdef __SANITIZE_THREAD__
// A process that ends by _exit() joins no thread, on purpose.
extern "C" const char* __tsan_default_options() {
  return "report_thread_leaks=0";
}
#endif

namespace lockstep::testing::heartbeat_test {

using std::chrono::seconds;
constexpr Milliseconds kEnough{20'000};

Activity activity(std::uint64_t collectives, bool inside, std::uint64_t progress = 0) {
  Activity now;
  now.step = 120;
  now.collectives = collectives;
  now.inside = inside;
  now.progress = progress;
  now.collective = Activity::name("all_gather");
  now.unit = Activity::name("layer 7");
  return now;
}

std::string who(int rank, pid_t pid = getpid()) {
  return str("rank ", rank, " (host ", host_name(), ", pid ", pid, ")");
}

// `verdict` names the rank `of` first. The text after it is the message `name`, except the seconds
// in it. The verdict holds `pins`.
void expect_verdict(const std::string& verdict, const std::string& of, const std::string& name,
                    const std::vector<std::string>& pins = {}) {
  const auto at = verdict.find(of);
  ASSERT_NE(at, verdict.npos) << of << " is not in: " << verdict;
  const auto begin = at + of.size() + 1;
  const auto fate = verdict.substr(begin, verdict.find_first_of(",;\n", begin) - begin);
  static const std::regex time("([0-9.]+) s");
  if (!name.empty()) expect_wording("dist/heartbeat", name, std::regex_replace(fate, time, "N s"));
  if (std::smatch found; name == "stopped answering" && std::regex_search(fate, found, time)) {
    EXPECT_GE(std::stod(found[1]), 1) << "every job here has at least this timeout";
  }
  for (const auto& pin : pins)
    expect_contains(verdict, pin);
}

// All ranks in this process, with the verdict of each.
class Ranks {
 public:
  explicit Ranks(int count, const Timing& timing = kFast) : job_(count, timing) {
    server.emplace(job_.options());
    told_.resize(static_cast<std::size_t>(count));
    controls_ = connect_all(job_, server->port());
    for (int rank = 0; rank < count; ++rank) {
      auto& doing = *doing_.emplace_back(std::make_unique<Doing>());
      hearts.push_back(std::make_unique<Heartbeat>(
          job_.membership(rank, server->port()), timing, [&doing] { return doing(); },
          [this, rank](const Verdict& verdict) {
            const std::lock_guard lock(mutex_);
            told_[static_cast<std::size_t>(rank)] = verdict;
          }));
    }
  }
  void report(int rank, const Activity& activity) {
    doing_[static_cast<std::size_t>(rank)]->report(activity);
  }
  std::string told(int rank) { return verdict(rank).text; }
  Verdict verdict(int rank) {
    const std::lock_guard lock(mutex_);
    return told_[static_cast<std::size_t>(rank)];
  }
  void expect_told(const std::vector<int>& ranks, int of, const std::string& name,
                   const std::vector<std::string>& pins = {}) {
    for (const int rank : ranks) {
      EXPECT_TRUE(eventually([&] { return !told(rank).empty(); })) << "rank " << rank;
      expect_verdict(told(rank), who(of), name, pins);
    }
  }
  // Last, because destructors of heartbeats call back.
 private:
  std::mutex mutex_;
  std::vector<Verdict> told_;
  std::vector<std::unique_ptr<Doing>> doing_;
  Job job_;
  std::vector<std::unique_ptr<Control>> controls_;

 public:
  std::optional<ControlServer> server;
  std::vector<std::unique_ptr<Heartbeat>> hearts;
};

TEST(Heartbeat, sends_no_verdict_without_a_fault) {
  Ranks ranks(3, {.interval = Milliseconds(10), .missed = 100, .stall = Milliseconds(0)});
  for (int i = 0; i < 30; ++i) {
    for (const int rank : {0, 1, 2})
      ranks.report(rank, activity(1, true));
    std::this_thread::sleep_for(Milliseconds(10));
  }
  for (int rank = 2; rank >= 0; --rank)
    ranks.hearts[static_cast<std::size_t>(rank)]->goodbye();
  EXPECT_EQ(ranks.told(0) + ranks.told(1) + ranks.told(2), "");
}

TEST(Heartbeat, a_goodbye_is_not_a_death_but_an_end_without_one_is) {
  Ranks ranks(4);
  ranks.report(2, activity(7, false));
  ranks.hearts[1]->goodbye();
  ranks.hearts[1].reset();
  std::this_thread::sleep_for(Milliseconds(300));
  EXPECT_EQ(ranks.told(0) + ranks.told(1) + ranks.told(2) + ranks.told(3), "");
  ranks.hearts[2].reset();  // the control server was listening all the time
  ranks.expect_told({0, 3}, 2, "died", {"step 120", "all_gather 7", "layer 7"});
}

TEST(Heartbeat, of_a_rank_that_failed_carries_its_message) {
  for (const int failing : {0, 2}) {
    Ranks ranks(4);
    ranks.hearts[static_cast<std::size_t>(failing)]->failed("the disk is full", 65);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == failing) continue;
      ranks.expect_told({rank}, failing, "failed", {"the disk is full"});
      EXPECT_EQ(ranks.verdict(rank).exit_code, 65);
    }
    EXPECT_EQ(ranks.told(failing), "");
  }
}

TEST(Heartbeat, names_the_rank_that_the_others_wait_for) {
  Ranks ranks(4);
  // Rank 2 stops before collective 9. The others enter it and wait, without progress too.
  const auto before = Clock::now();
  for (std::uint64_t i = 0; i < 9; ++i)
    for (int rank = 0; rank < 4; ++rank)
      ranks.report(rank, activity(i, false, i));
  for (const int rank : {0, 1, 3})
    ranks.report(rank, activity(9, true, 10));
  ranks.expect_told({0, 1, 2, 3}, 2, "no progress",
                    {"step 120", "all_gather 9", "layer 7", "ranks 0, 1, 3"});
  EXPECT_GE(Clock::now() - before, kFast.stall);
}

TEST(Heartbeat, reports_no_stall_while_the_slowest_makes_progress) {
  Ranks ranks(3, {.interval = Milliseconds(20), .missed = 100, .stall = Milliseconds(800)});
  for (const int rank : {0, 1})
    ranks.report(rank, activity(9, true, 1));
  for (std::uint64_t i = 0; i < 80; ++i) {
    ranks.report(2, activity(8, false, i));
    std::this_thread::sleep_for(Milliseconds(15));
  }
  EXPECT_EQ(ranks.told(0) + ranks.told(1) + ranks.told(2), "");
}

TEST(Heartbeat, that_starts_after_the_verdict_gets_it_too) {
  Job job(2);
  ControlServer server(job.options());
  const auto controls = connect_all(job, server.port());
  std::mutex mutex;
  std::vector<std::string> told;
  const auto nothing = [] { return Activity{}; };
  const auto keep = [&](const Verdict& verdict) {
    const std::lock_guard lock(mutex);
    told.push_back(verdict.text);
  };
  const auto count = [&](std::size_t n) {
    return [&, n] {
      const std::lock_guard lock(mutex);
      return told.size() == n;
    };
  };
  { const Heartbeat one(job.membership(1, server.port()), kFast, nothing, keep); }
  std::this_thread::sleep_for(Milliseconds(100));
  const Heartbeat zero(job.membership(0, server.port()), kFast, nothing, keep);
  EXPECT_TRUE(eventually(count(1)));
}

// A job of processes. Each rank has a control server (rank 0), Control and a heartbeat. It then
// waits in a simulated collective until it is told to end or the heartbeat ends it.
class Members : public Processes {
 public:
  Members(int ranks, const Timing& timing, const std::filesystem::path& folder,
          const std::function<void(int)>& place = {}, const std::string& address = "127.0.0.1")
      : ranks_(ranks), folder_(folder) {
    Job job(ranks, timing);
    const auto port = port_.number();
    for (int rank = 0; rank < ranks; ++rank)
      start([=, this] {
        if (place) place(rank);
        std::optional<ControlServer> server;
        if (rank == 0) {
          auto options = job.options();
          options.address = "";
          options.port = port;
          server.emplace(options);
        }
        auto membership = job.membership(rank, port);
        membership.addresses = {address};
        Control control(membership);
        const Heartbeat heartbeat(
            membership, timing,
            [progress = std::uint64_t{0}]() mutable { return activity(4711, true, ++progress); },
            [=, this](const Verdict& verdict) {
              end_process(verdict, {.rank = rank, .last_words = [&] {
                                      write_text(file(rank), verdict.text + "\n");
                                    }});
            });
        control.barrier("all beat", kEnough);
        std::this_thread::sleep_for(2 * timing.interval);  // until that report has been sent
        write_text(folder_ / str("ready.", rank), "");
        for (;;)
          pause();
        return 0;
      });
  }
  bool ready() const {
    return eventually(
        [this] {
          for (int rank = 0; rank < ranks_; ++rank)
            if (!std::filesystem::exists(folder_ / str("ready.", rank))) return false;
          return true;
        },
        kEnough);
  }
  std::string file(int rank) const { return (folder_ / str("verdict.", rank)).string(); }
  std::string verdict(int rank) const {
    return std::filesystem::exists(file(rank)) ? read_text(file(rank), 1 << 20) : "";
  }
  std::string name(int rank) const { return who(rank, pid(rank)); }
  std::vector<int> all_but(int one) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_; ++rank)
      if (rank != one) ranks.push_back(rank);
    return ranks;
  }
  // All ranks except `victim` end with 75, `within` a time, and report it.
  void expect_ended(int victim, Milliseconds within, const std::string& fate,
                    const std::vector<std::string>& pins = {}) {
    EXPECT_TRUE(eventually([&] { return all_ended(all_but(victim)); }, within));
    for (const int rank : all_but(victim)) {
      EXPECT_EQ(ended(rank), 75) << "rank " << rank;
      expect_verdict(verdict(rank), name(victim), fate, pins);
    }
  }

 private:
  int ranks_;
  std::filesystem::path folder_;
  ReservedPort port_;
};

class Deaths : public ::testing::Test {
 protected:
  TemporaryDirectory folder_;
};

// Four ranks, all of which beat.
class DeathsOfFour : public Deaths {
 protected:
  void SetUp() override { ASSERT_TRUE(job_.ready()); }
  Members job_{4, kFast, folder_.path()};
};

TEST_F(DeathsOfFour, by_a_kill_end_all_others) {
  job_.signal(2, SIGKILL);
  job_.expect_ended(2, kEnough, "died", {"step 120", "all_gather 4711", "layer 7"});
  EXPECT_TRUE(eventually([&] { return job_.ended(2) == 128 + SIGKILL; }));
}

TEST_F(DeathsOfFour, of_rank_0_end_all_others) {
  job_.signal(0, SIGKILL);
  job_.expect_ended(0, kEnough, "");
}

TEST_F(DeathsOfFour, by_a_stop_end_all_others_and_itself_when_it_continues) {
  job_.signal(3, SIGSTOP);
  job_.expect_ended(3, kEnough, "stopped answering");
  EXPECT_EQ(job_.ended(3), std::nullopt);
  job_.signal(3, SIGCONT);
  EXPECT_TRUE(eventually([&] { return job_.ended(3) == 75; }));
}

TEST_F(DeathsOfFour, by_a_stop_of_rank_0_end_all_others_and_itself_when_it_continues) {
  job_.signal(0, SIGSTOP);
  job_.expect_ended(0, kEnough, "stopped answering");
  job_.signal(0, SIGCONT);
  EXPECT_TRUE(eventually([&] { return job_.ended(0) == 75; }));
  const auto said = job_.verdict(0);
  expect_verdict(said.substr(said.find("failed: ")), job_.name(0), "stopped answering");
}

TEST_F(Deaths, are_not_reported_after_a_short_stop) {
  Members job(3, {.interval = Milliseconds(50), .missed = 100, .stall = Milliseconds(0)},
              folder_.path());
  ASSERT_TRUE(job.ready());
  for (const int rank : {0, 1}) {
    job.signal(rank, SIGSTOP);
    std::this_thread::sleep_for(Milliseconds(400));
    job.signal(rank, SIGCONT);
    std::this_thread::sleep_for(Milliseconds(200));
  }
  for (const int rank : {0, 1, 2})
    EXPECT_EQ(job.ended(rank), std::nullopt) << job.verdict(rank);
}

// The time in which a rank was stopped is not silence of rank 0.
TEST_F(Deaths, of_rank_0_are_detected_by_a_rank_that_is_often_stopped) {
  Members job(2, {.interval = Milliseconds(50), .missed = 20, .stall = Milliseconds(0)},
              folder_.path());
  ASSERT_TRUE(job.ready());
  job.signal(0, SIGSTOP);
  for (const auto end = Clock::now() + kEnough; Clock::now() < end && !job.ended(1);) {
    job.signal(1, SIGSTOP);
    std::this_thread::sleep_for(Milliseconds(150));
    job.signal(1, SIGCONT);
    std::this_thread::sleep_for(Milliseconds(250));
  }
  ASSERT_TRUE(job.ended(1)) << "its timeout never passes";
  job.expect_ended(0, kEnough, "stopped answering");
}

// Three jobs at once with the timing of a real job: a stopped rank, rank 0 killed, rank 0 stopped.
TEST_F(Deaths, end_every_other_process_within_ten_seconds) {
  std::vector<std::unique_ptr<Members>> jobs;
  for (const auto* name : {"stopped", "killed_0", "stopped_0"}) {
    make_directories(folder_.path() / name);
    jobs.push_back(std::make_unique<Members>(4, Timing{}, folder_.path() / name));
  }
  for (const auto& job : jobs)
    ASSERT_TRUE(job->ready());
  const auto before = Clock::now();
  jobs[0]->signal(2, SIGSTOP);
  jobs[1]->signal(0, SIGKILL);
  jobs[2]->signal(0, SIGSTOP);
  const auto left = [&] {
    return std::chrono::duration_cast<Milliseconds>(before + seconds(10) - Clock::now());
  };
  jobs[1]->expect_ended(0, left(), "");
  jobs[0]->expect_ended(2, left(), "stopped answering");
  jobs[2]->expect_ended(0, left(), "stopped answering");
  const std::chrono::duration<double> time = Clock::now() - before;
  std::printf("all others had ended after %.1f s; %s", time.count(), jobs[0]->verdict(1).c_str());
  jobs[0]->signal(2, SIGCONT);
  jobs[2]->signal(0, SIGCONT);
  EXPECT_TRUE(eventually([&] { return jobs[0]->ended(2) == 75 && jobs[2]->ended(0) == 75; }));
}

// Two network namespaces with a cable between them: rank 1 is in the other one.
class Cable {
 public:
  Cable() {
    works_ = run(str("ip netns add ", a_)) && run(str("ip netns add ", b_)) &&
             run(str("ip -n ", a_, " link add cable type veth peer name cable netns ", b_));
    for (const auto& [space, address] : {std::pair(a_, "10.213.77.1/30"), {b_, "10.213.77.2/30"}})
      works_ = works_ && run(str("ip -n ", space, " addr add ", address, " dev cable")) &&
               run(str("ip -n ", space, " link set cable up")) &&
               run(str("ip -n ", space, " link set lo up"));
  }
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;
  ~Cable() {
    run(str("ip netns del ", a_));
    run(str("ip netns del ", b_));
  }
  bool works() const { return works_; }
  void cut() const { EXPECT_TRUE(run(str("ip -n ", a_, " link set cable down"))); }
  void enter(int rank) const {
    const auto path = str("/run/netns/", rank == 1 ? b_ : a_);
    const int space = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    LOCKSTEP_CHECK(space >= 0 && setns(space, CLONE_NEWNET) == 0, "cannot enter ", path);
    close(space);
  }

 private:
  static bool run(const std::string& command) {
    return std::system((command + " 2>/dev/null").c_str()) == 0;  // NOLINT
  }
  std::string a_ = str("lockstep-a-", getpid()), b_ = str("lockstep-b-", getpid());
  bool works_ = false;
};

TEST_F(Deaths, of_a_cut_cable_end_both_sides) {
  const Cable cable;
  if (!cable.works())
    GTEST_SKIP()
        << "SKIPPED: no network namespaces here (needs root and ip): a cut link is untested";
  Members job(
      3, kFast, folder_.path(), [&](int rank) { cable.enter(rank); }, "10.213.77.1");
  ASSERT_TRUE(job.ready());
  cable.cut();
  EXPECT_TRUE(eventually([&] { return job.all_ended({0, 1, 2}); }));
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(job.ended(rank), 75);
    expect_verdict(job.verdict(rank), job.name(rank == 1 ? 0 : 1), "stopped answering");
  }
}

TEST_F(Deaths, end_the_process_even_if_its_last_act_hangs) {
  Processes processes;
  const auto before = Clock::now();
  processes.start([]() -> int {
    end_process({.text = "rank 1 died", .exit_code = 65},
                {.rank = 3, .last_words = [] { pause(); }, .grace = Milliseconds(200)});
  });
  EXPECT_TRUE(eventually([&] { return processes.ended(0) == 65; }));
  EXPECT_GE(Clock::now() - before, Milliseconds(200));
}

}  // namespace lockstep::testing::heartbeat_test
