#include "train/run_log.h"

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/files.h"

namespace lockstep::testing::run_log_test {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size())
    ++found;
  return found;
}

// While it lives the file does not grow, nor any that is as large.
class NoRoom {
 public:
  explicit NoRoom(const std::filesystem::path& file) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit none = before_;
    none.rlim_cur = std::filesystem::file_size(file);
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoRoom() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(RunLog, each_of_its_files_that_cannot_be_written_is_said_once_and_the_others_go_on) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory / "run");
  spit(run.ledger(), "damaged\n");
  Config::Log config;
  config.tensorboard = false;
  config.prometheus_file = "absent/x.prom";
  LoneWorld alone;
  ::testing::internal::CaptureStderr();
  RunLog log(alone, run, config, 3);
  log.open(config, {.began = std::chrono::steady_clock::now()});
  for (std::int64_t step = 1; step <= 3; ++step) {
    StepReport report;
    report.step = step;
    log.append(report);
  }
  log.end(0, "done", 0);
  log.attempt([] { throw DataError("what is written once"); });
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said, "ledger.jsonl: line 1"), 1) << said;
  EXPECT_EQ(count(said, "absent/x.prom: cannot create"), 1) << said;
  EXPECT_EQ(count(said, "what is written once; the run goes on, its logs have holes"), 1) << said;
  EXPECT_EQ(count(slurp(run.metrics()), "\"step\":"), 3);
  EXPECT_EQ(slurp(run.ledger()), "damaged\n");
}

// A world whose watch ends the run when the test says so.
class EndedWorld final : public WorldOver {
 public:
  using WorldOver::WorldOver;
  void set_last_act(const LastAct& act) override { last_act = act; }
  LastAct last_act;
};

// As where a disk was full for a while.
TEST(RunLog, what_can_be_written_again_says_what_is_missing_and_may_fail_again) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory / "run");
  Config::Log config;
  config.tensorboard = false;
  config.prometheus_file = "";
  spit(run.metrics(), "{\"note\": \"" + std::string(1 << 16, 'x') + "\"}\n");
  LoneWorld alone;
  RunLog log(alone, run, config, 9);
  log.open(config, {.began = std::chrono::steady_clock::now()});
  const auto append = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step <= to; ++step) {
      StepReport report;
      report.step = step;
      log.append(report);
    }
  };
  ::testing::internal::CaptureStderr();
  append(1, 2);
  {
    const NoRoom no_room(run.metrics());
    append(3, 7);
  }
  append(8, 8);
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said, "metrics.jsonl: at byte "), 1) << said;
  expect_contains(said, "metrics.jsonl is written again; lines of steps 3 to 7 are missing");
  {
    const NoRoom no_room(run.metrics());
    ::testing::internal::CaptureStderr();
    append(9, 9);
    expect_contains(::testing::internal::GetCapturedStderr(), "metrics.jsonl: at byte ");
  }
  EXPECT_EQ(count(slurp(run.metrics()), "\"step\":"), 3);
}

TEST(RunLog, files_that_were_removed_moved_or_replaced_are_opened_again) {
  namespace fs = std::filesystem;
  const TemporaryDirectory directory;
  const RunDirectory run(directory / "run");
  LoneWorld alone;
  RunLog log(alone, run, {}, 9);
  log.open({}, {.began = std::chrono::steady_clock::now(), .ranks = 2});
  const auto append = [&](std::int64_t step) {
    StepReport report;
    report.step = step;
    log.append(report);
  };
  const auto events = [&] {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(run.path()))
      if (entry.path().filename().string().starts_with("events.")) found.push_back(entry.path());
    return found;
  };
  append(1);
  ::testing::internal::CaptureStderr();
  log.reopen_lost(1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(events().size(), 1u);

  fs::rename(run.metrics(), directory / "rotated");
  spit(run.metrics(), "{\"step\":1}\n{\"step\":7}\n");  // a copy that somebody edited
  fs::remove(run.ledger());
  fs::remove(events().front());
  ::testing::internal::CaptureStderr();
  append(2);
  log.reopen_lost(2);
  append(3);
  log.end(0, "done", 0);
  const auto said = ::testing::internal::GetCapturedStderr();
  for (const std::string name : {"metrics.jsonl", "ledger.jsonl", "TensorBoard's file"})
    EXPECT_EQ(count(said, name + " was removed, moved or replaced"), 1) << said;
  const auto metrics = slurp(run.metrics());
  EXPECT_EQ(count(metrics, "\"step\":"), 2) << metrics;
  EXPECT_EQ(count(metrics, "\"step\":3,"), 1) << metrics;
  EXPECT_EQ(count(slurp(directory / "rotated"), "\"step\":"), 2);
  ASSERT_EQ(events().size(), 1u);
  EXPECT_GT(fs::file_size(events().front()), 100u);
  const auto ledger = read_ledger(run.ledger());
  ASSERT_EQ(ledger.size(), 3u);
  EXPECT_EQ(ledger.front().step, 2);
  EXPECT_EQ(ledger.front().ranks, 2);
}

// Another run that trains there has its own.
TEST(RunLog, the_page_is_not_written_into_what_replaced_the_directory) {
  namespace fs = std::filesystem;
  const TemporaryDirectory directory;
  const RunDirectory run(directory / "run");
  LoneWorld alone;
  RunLog log(alone, run, {}, 3);
  fs::rename(run.path(), directory / "moved");
  fs::create_directory(run.path());
  spit(run.path() / "metrics.prom", "another run's");
  ::testing::internal::CaptureStderr();
  log.stay_at(2);
  expect_contains(::testing::internal::GetCapturedStderr(), "the run directory was removed");
  EXPECT_EQ(slurp(run.path() / "metrics.prom"), "another run's");
}

TEST(RunLog, a_resume_warns_of_logs_that_lack_earlier_steps) {
  const TemporaryDirectory directory;
  LoneWorld alone;
  Config::Log config;
  config.tensorboard = false;
  config.prometheus_file = "";
  const auto warned = [&](const std::string& name, const char* metrics, std::int64_t step) {
    const RunDirectory run(directory / name);
    if (metrics != nullptr) {
      spit(run.metrics(), metrics);
      spit(run.ledger(), "");
    }
    RunLog log(alone, run, config, 9);
    ::testing::internal::CaptureStderr();
    log.open(config, {.began = std::chrono::steady_clock::now(), .step = step});
    return ::testing::internal::GetCapturedStderr();
  };
  const auto gone = warned("gone", nullptr, 3);
  expect_contains(gone, "metrics.jsonl: the last step is 0; expected step 3");
  expect_contains(gone, "ledger.jsonl: the file is missing; goodput counts from step 3 on");
  const auto cut = warned("cut", "{\"step\":1}\n{\"step\":2}\n{\"st", 3);
  expect_contains(cut, "metrics.jsonl: the last step is 2; expected step 3");
  const auto whole = "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"note\":1}\n{\"step\":4}\n";
  const auto whole_run = warned("whole", whole, 3);
  EXPECT_EQ(whole_run.find("expected step"), std::string::npos) << whole_run;
  EXPECT_EQ(whole_run.find("no line"), std::string::npos) << whole_run;
  // Rotated, or removed and opened again by an earlier start.
  expect_contains(warned("late", "{\"step\":3}\n{\"note\":1}\n{\"step\":4}\n", 4),
                  "metrics.jsonl: 2 of the steps 1 to 4 have no line. Reports will lack them");
  expect_contains(warned("hole", "{\"step\":1}\n{\"step\":3}\n", 3),
                  "metrics.jsonl: 1 of the steps 1 to 3 has no line. Reports will lack it");
  EXPECT_EQ(warned("new", nullptr, 0), "");
}

TEST(RunLog, what_the_watch_ends_has_its_steps_and_its_end) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory / "run");
  LoneWorld alone;
  EndedWorld world(alone);
  {
    Config::Log config;
    config.tensorboard = false;
    RunLog log(world, run, config, 3);
    log.open(config, {.began = std::chrono::steady_clock::now()});
    StepReport report;
    report.step = 1;
    log.append(report);
    log.end(75, "the connection to rank 1 is lost", 0);
    world.last_act("rank 1 died", 75);
    log.append(report);  // by the thread that trains, before the process ends
    log.end(1, "too late", 0);
    const auto lines = read_ledger(run.ledger());
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[1].last, 1);
    EXPECT_EQ(starts_of(lines).front().why, "rank 1 died");
    EXPECT_EQ(starts_of(lines).front().exit_code, 75);
    expect_contains(slurp(run.path() / "metrics.prom"), "lockstep_running{run=\"run\"} 0\n");
  }
  EXPECT_FALSE(world.last_act) << "which would write into what is gone";
}

TEST(RunLog, a_process_shows_itself_when_it_begins_and_when_it_ends_before_a_step) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory / "run");
  spit(run.path() / "metrics.prom", "of a process that was killed");
  LoneWorld alone;
  {
    const RunLog log(alone, run, {}, 30);
    const auto text = slurp(run.path() / "metrics.prom");
    expect_contains(text, "lockstep_running{run=\"run\"} 1\n");
    expect_contains(text, "lockstep_steps{run=\"run\"} 30\n");
  }
  expect_contains(slurp(run.path() / "metrics.prom"), "lockstep_running{run=\"run\"} 0\n");
}

// As where a run that is finished is started again, or its data are not there.
TEST(RunLog, a_start_that_does_no_step_shows_the_last_numbers) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory / "run");
  Config::Log config;
  config.tensorboard = false;
  LoneWorld alone;
  {
    RunLog log(alone, run, config, 3);
    log.open(config, {.began = std::chrono::steady_clock::now()});
    StepReport report;
    report.step = 3;
    report.loss = 2.5;
    log.append(report);
    log.end(0, "done", 0);
  }
  const auto expect_numbers = [&] {
    const auto text = slurp(run.path() / "metrics.prom");
    expect_contains(text, "lockstep_step{run=\"run\"} 3\n");
    expect_contains(text, "lockstep_loss{run=\"run\"} 2.5\n");
    expect_contains(text, "lockstep_goodput_ratio{");
  };
  expect_numbers();
  { const RunLog refused(alone, run, config, 3); }
  expect_numbers();
  {
    RunLog finished(alone, run, config, 3);
    finished.stay_at(3);
    finished.end(0, "done", 0);
  }
  expect_numbers();
  spit(run.metrics(), "damaged\n");
  spit(run.ledger(), "damaged\n");
  {
    RunLog finished(alone, run, config, 3);
    finished.stay_at(3);
  }
  expect_contains(slurp(run.path() / "metrics.prom"), "lockstep_step{run=\"run\"} 3\n");
}

// The watch may end the run while it starts.
TEST(RunLog, what_the_watch_ended_is_not_opened) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory / "run");
  LoneWorld alone;
  EndedWorld world(alone);
  RunLog log(world, run, {}, 3);
  world.last_act("rank 1 died", 75);
  log.open({}, {.began = std::chrono::steady_clock::now()});
  EXPECT_FALSE(std::filesystem::exists(run.ledger()));
  expect_contains(slurp(run.path() / "metrics.prom"), "lockstep_running{run=\"run\"} 0\n");
}

}  // namespace lockstep::testing::run_log_test
