#include "train/observe/run_log.h"

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/train/log.h"

namespace lockstep::testing::run_log_test {

namespace fs = std::filesystem;

constexpr const char* kReader = "train/run_log";

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size())
    ++found;
  return found;
}

// While it lives, no file of this size or larger can grow.
class NoRoom {
 public:
  explicit NoRoom(const fs::path& file) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit none = before_;
    none.rlim_cur = fs::file_size(file);
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoRoom() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

// A world whose failure detector aborts the run on request.
class EndedWorld final : public WorldOver {
 public:
  using WorldOver::WorldOver;
  void set_exit_handler(const ExitHandler& act) override { exit_handler = act; }
  ExitHandler exit_handler;
};

void append(RunLog& log, std::int64_t first, std::int64_t last, double loss = 0) {
  for (std::int64_t step = first; step <= last; ++step) {
    StepReport report;
    report.step = step;
    report.loss = loss;
    report.eta_seconds = 60;
    log.append(report);
  }
}

Ledger::Start start_at(std::int64_t step, std::int64_t ranks = 1) {
  return {.began = std::chrono::steady_clock::now(), .step = step, .ranks = ranks};
}

class RunLogTest : public ::testing::Test {
 protected:
  RunLogTest() { config_.log.tensorboard = false; }

  std::string page() const { return slurp(run_.path() / "metrics.prom"); }
  void expect_page(std::initializer_list<const char*> lines) const {
    for (const char* line : lines)
      expect_contains(page(), line);
  }

  TemporaryDirectory directory_;
  const RunDirectory run_{directory_ / "run"};
  LoneWorld alone_;
  EndedWorld world_{alone_};
  Config config_;
};

TEST_F(RunLogTest, a_stale_process_writes_to_none_of_the_files_of_its_successor) {
  RunDirectory stale_run(directory_ / "shared");
  stale_run.claim_epoch();
  std::optional<RunLog> stale;
  stale.emplace(alone_, stale_run, config_);
  stale->open(config_.log, start_at(0));
  append(*stale, 1, 3);
  fs::remove(stale_run.path() / "lock");
  RunDirectory run(directory_ / "shared");
  run.claim_epoch();
  RunLog log(alone_, run, config_);
  log.open(config_.log, start_at(2));
  append(log, 3, 4, 1);
  const auto files = [&] {
    return slurp(run.metrics()) + slurp(run.ledger()) + slurp(run.path() / "metrics.prom");
  };
  const auto before = files();
  EXPECT_EQ(count(slurp(run.metrics()), "\"step\":"), 4);
  EXPECT_THROW(append(*stale, 4, 4), TransientError);
  EXPECT_THROW(stale->reopen_lost(4), TransientError);
  stale->end(75, "taken over", 0);
  stale.reset();
  EXPECT_EQ(files(), before);
  append(log, 5, 5);
  EXPECT_EQ(count(slurp(run.metrics()), "\"step\":"), 5);
}

TEST_F(RunLogTest, each_file_that_cannot_be_written_is_reported_once_and_the_others_continue) {
  spit(run_.ledger(), "damaged\n");
  config_.log.prometheus_file = "absent/x.prom";
  const auto said = stderr_of([&] {
    RunLog log(alone_, run_, config_);
    log.open(config_.log, start_at(0));
    append(log, 1, 3);
    log.end(0, "done", 0);
    log.attempt([] { throw DataError("thrown once"); });
  });
  for (const char* once : {"ledger.jsonl: line 1", "absent/x.prom: ", "thrown once"})
    EXPECT_EQ(count(said, once), 1) << said;
  expect_wording(kReader, "files that cannot be written", said);
  EXPECT_EQ(count(slurp(run_.metrics()), "\"step\":"), 3);
  EXPECT_EQ(slurp(run_.ledger()), "damaged\n");
}

// For example, when a disk was full for some time.
TEST_F(RunLogTest, a_file_that_can_be_written_again_is_logged_with_its_missing_steps) {
  config_.log.prometheus_file = "";
  spit(run_.metrics(), "{\"note\": \"" + std::string(1 << 16, 'x') + "\"}\n");
  RunLog log(alone_, run_, config_);
  log.open(config_.log, start_at(0));
  const auto said = stderr_of([&] {
    append(log, 1, 2);
    {
      const NoRoom no_room(run_.metrics());
      append(log, 3, 7);
    }
    append(log, 8, 8);
  });
  EXPECT_EQ(count(said, "metrics.jsonl: at byte "), 1) << said;
  const auto again = said.substr(said.find('\n') + 1);
  expect_contains(again, "3 to 7");
  expect_wording(kReader, "written again", again);
  const auto once_more = stderr_of([&] {
    const NoRoom no_room(run_.metrics());
    append(log, 9, 9);
  });
  expect_contains(once_more, "metrics.jsonl: at byte ");
  EXPECT_EQ(count(slurp(run_.metrics()), "\"step\":"), 3);
}

TEST_F(RunLogTest, files_that_were_removed_moved_or_replaced_are_opened_again) {
  RunLog log(alone_, run_, {});
  log.open({}, start_at(0, 2));
  const auto events = [&] {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(run_.path()))
      if (entry.path().filename().string().starts_with("events.")) found.push_back(entry.path());
    return found;
  };
  append(log, 1, 1);
  EXPECT_EQ(stderr_of([&] { log.reopen_lost(1); }), "");
  ASSERT_EQ(events().size(), 1u);

  fs::rename(run_.metrics(), directory_ / "rotated");
  spit(run_.metrics(), "{\"step\":1}\n{\"step\":7}\n");  // an edited copy
  fs::remove(run_.ledger());
  fs::remove(events().front());
  append(log, 2, 2);
  expect_log(kReader, "opened again", {"metrics.jsonl", "ledger.jsonl", "TensorBoard"},
             [&] { log.reopen_lost(2); });
  append(log, 3, 3);
  stderr_of([&] { log.end(0, "done", 0); });
  const auto metrics = slurp(run_.metrics());
  EXPECT_EQ(count(metrics, "\"step\":"), 2) << metrics;
  EXPECT_EQ(count(metrics, "\"step\":3,"), 1) << metrics;
  EXPECT_EQ(count(slurp(directory_ / "rotated"), "\"step\":"), 2);
  ASSERT_EQ(events().size(), 1u);
  EXPECT_GT(fs::file_size(events().front()), 100u);
  const auto ledger = read_ledger(run_.ledger());
  ASSERT_EQ(ledger.size(), 3u);
  EXPECT_EQ(ledger.front().step, 2);
  EXPECT_EQ(ledger.front().ranks, 2);
}

// Another run in that directory has its own page.
TEST_F(RunLogTest, the_page_is_not_written_into_a_directory_that_replaced_the_run) {
  RunLog log(alone_, run_, {});
  fs::rename(run_.path(), directory_ / "moved");
  fs::create_directory(run_.path());
  spit(run_.path() / "metrics.prom", "another run's");
  expect_log(kReader, "a replaced directory", {run_.path().string()}, [&] { log.stay_at(2); });
  EXPECT_EQ(page(), "another run's");
}

TEST_F(RunLogTest, a_resume_warns_of_logs_that_lack_earlier_steps) {
  config_.log.prometheus_file = "";
  struct Row {
    const char* name;
    const char* metrics;  // nullptr: there are no metrics and no ledger
    std::int64_t step;
    std::vector<std::string> pins;  // none: no warning
  };
  const Row rows[] = {
      {"gone", nullptr, 3, {"metrics.jsonl", "0", "3", "ledger.jsonl"}},
      {"cut", "{\"step\":1}\n{\"step\":2}\n{\"st", 3, {"metrics.jsonl", "2", "3"}},
      {"whole", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"note\":1}\n{\"step\":4}\n", 3, {}},
      // Rotated, or removed and opened again by an earlier start.
      {"late", "{\"step\":3}\n{\"note\":1}\n{\"step\":4}\n", 4, {"metrics.jsonl", "2", "4"}},
      {"hole", "{\"step\":1}\n{\"step\":3}\n", 3, {"metrics.jsonl", "1", "3"}},
      {"new", nullptr, 0, {}}};
  for (const auto& [name, metrics, step, pins] : rows) {
    const RunDirectory run(directory_ / name);
    if (metrics != nullptr) {
      spit(run.metrics(), metrics);
      spit(run.ledger(), "");
    }
    RunLog log(alone_, run, config_);
    const auto said = stderr_of([&, step = step] { log.open(config_.log, start_at(step)); });
    for (const auto& pin : pins)
      expect_contains(said, pin);
    EXPECT_EQ(said.empty(), pins.empty()) << name << ": " << said;
    if (!pins.empty()) expect_wording(kReader, str("logs that lack steps: ", name), said);
  }
}

TEST_F(RunLogTest, an_aborted_run_has_its_steps_and_its_end) {
  {
    RunLog log(world_, run_, config_);
    log.open(config_.log, start_at(0));
    append(log, 1, 1);
    log.end(75, "the connection to rank 1 is lost", 0);
    world_.exit_handler("rank 1 died", 75, {});
    append(log, 1, 1);  // from the training thread, before the process ends
    log.end(1, "too late", 0);
    const auto lines = read_ledger(run_.ledger());
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[1].last, 1);
    EXPECT_EQ(starts_of(lines).front().why, "rank 1 died");
    EXPECT_EQ(starts_of(lines).front().exit_code, 75);
    expect_page({"lockstep_running{run=\"run\"} 0\n"});
  }
  EXPECT_FALSE(world_.exit_handler) << "it would use a destroyed log";
}

// The failure detector may abort the run while it starts.
TEST_F(RunLogTest, an_aborted_run_opens_no_logs) {
  RunLog log(world_, run_, {});
  world_.exit_handler("rank 1 died", 75, {});
  log.open({}, start_at(0));
  EXPECT_FALSE(fs::exists(run_.ledger()));
  expect_page({"lockstep_running{run=\"run\"} 0\n"});
}

TEST_F(RunLogTest, a_process_publishes_its_begin_and_an_end_before_the_first_step) {
  spit(run_.path() / "metrics.prom", "of a process that was killed");
  {
    config_.train.steps = 30;
    const RunLog log(alone_, run_, config_);
    expect_page({"lockstep_running{run=\"run\"} 1\n", "lockstep_steps{run=\"run\"} 30\n"});
  }
  expect_page({"lockstep_running{run=\"run\"} 0\n"});
}

// For example, when a finished run is started again, or when its data are missing.
TEST_F(RunLogTest, a_start_without_steps_publishes_the_last_values) {
  const auto numbers = {"lockstep_step{run=\"run\"} 3\n", "lockstep_loss{run=\"run\"} 2.5\n",
                        "lockstep_goodput_ratio{"};
  {
    RunLog log(alone_, run_, config_);
    log.open(config_.log, start_at(0));
    append(log, 3, 3, 2.5);
    log.end(0, "done", 0);
  }
  expect_page(numbers);
  { const RunLog refused(alone_, run_, config_); }
  expect_page(numbers);
  EXPECT_EQ(page().find("lockstep_eta_seconds"), std::string::npos) << "the process has ended";
  {
    RunLog finished(alone_, run_, config_);
    finished.stay_at(3);
    finished.end(0, "done", 0);
  }
  expect_page(numbers);
  spit(run_.metrics(), "damaged\n");
  spit(run_.ledger(), "damaged\n");
  {
    RunLog finished(alone_, run_, config_);
    finished.stay_at(3);
  }
  expect_page({"lockstep_step{run=\"run\"} 3\n"});
}

}  // namespace lockstep::testing::run_log_test
