#include "train/run_log.h"

#include <chrono>
#include <gtest/gtest.h>

#include "tests/files.h"

namespace lockstep::testing {
namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size())
    ++found;
  return found;
}

TEST(RunLog, each_of_its_files_that_cannot_be_written_is_said_once_and_the_others_go_on) {
  const TemporaryDirectory directory;
  const RunDirectory run(directory / "run");
  spit(run.ledger(), "damaged\n");
  Config::Log config;
  config.tensorboard = false;
  config.prometheus_file = "absent/x.prom";
  RunLog log;
  ::testing::internal::CaptureStderr();
  log.open(run, config, {.began = std::chrono::steady_clock::now()});
  for (std::int64_t step = 1; step <= 3; ++step) {
    StepReport report;
    report.step = step;
    log.append(report);
  }
  log.end(0, "done", 0);
  log.attempt([] { throw DataError("what is written once"); });
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(said, "ledger.jsonl: line 1"), 1) << said;
  EXPECT_EQ(count(said, "absent/x.prom.tmp: cannot create"), 1) << said;
  EXPECT_EQ(count(said, "what is written once; the run goes on, its logs have holes"), 1) << said;
  EXPECT_EQ(count(slurp(run.metrics()), "\"step\":"), 3);
  EXPECT_EQ(slurp(run.ledger()), "damaged\n");
}

}  // namespace
}  // namespace lockstep::testing
