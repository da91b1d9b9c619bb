#include "train/observe/metrics_log.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/wording.h"

namespace lockstep::testing::metrics_log_test {

StepReport at(std::int64_t step) {
  StepReport r;
  r.step = step;
  r.loss = 3.25;
  r.grad_norm = 0.5;
  r.learning_rate = 6e-4;
  r.step_seconds = 0.25;
  r.model_flops_utilization = 0.471;
  r.time[Component::attention] = 0.125;
  return r;
}

TEST(MetricsLog, a_line_is_one_flat_object_with_the_step_first) {
  auto r = at(12);
  const auto line = to_json_line(r, 1700000000.5);
  EXPECT_EQ(line.rfind("{\"step\":12,", 0), 0u) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = Json::parse(line.substr(0, line.size() - 1), "line", 1);
  for (const std::string key : {"step",
                                "loss",
                                "grad_norm",
                                "learning_rate",
                                "step_seconds",
                                "tokens_per_second",
                                "mfu",
                                "mfu_square",
                                "data_wait_seconds",
                                "loss_z",
                                "grad_norm_z",
                                "skipped",
                                "valid_tokens",
                                "tokens_seen",
                                "peak_bytes",
                                "products_seconds",
                                "attention_seconds",
                                "memory_bound_seconds",
                                "communication_tensor_seconds",
                                "communication_shard_seconds",
                                "communication_replicate_seconds",
                                "communication_ranks_seconds",
                                "communication_host_seconds",
                                "optimizer_seconds",
                                "data_seconds",
                                "checkpoint_seconds",
                                "other_seconds",
                                "evaluation_seconds",
                                "eta_seconds",
                                "time_seconds"})
    EXPECT_NE(json.find(key), nullptr) << key;
  EXPECT_EQ(json.at("loss").as_double(), 3.25);
  EXPECT_EQ(json.at("learning_rate").as_double(), 6e-4);
  EXPECT_EQ(json.at("mfu").as_double(), 0.471);
  EXPECT_EQ(json.at("attention_seconds").as_double(), 0.125);
  EXPECT_EQ(json.at("time_seconds").as_double(), 1700000000.5);
  EXPECT_TRUE(json.at("mfu_square").is_null());
  EXPECT_FALSE(json.at("skipped").as_bool());
  EXPECT_EQ(json.find("validation_loss"), nullptr);
  EXPECT_EQ(json.find("slowest_rank"), nullptr);
  r.slowest = SlowestRank{.rank = 3, .seconds = 0.5, .median = 0.4};
  expect_contains(to_json_line(r, 0), "\"slowest_rank\":3,\"slowest_rank_ratio\":1.25");
  r.gpu = GpuReading{.clock_mhz = 1100, .power_capped = false, .slowed_by = {"heat", "power"}};
  expect_contains(to_json_line(r, 0),
                  "\"gpu_power_capped\":false,\"gpu_slowed_by\":\"heat, power\"");
  r.gpu.reset();
  r.validation_loss = 3.5;
  expect_contains(to_json_line(r, 0), "\"validation_loss\":3.5}");
}

std::vector<std::int64_t> steps_in(const std::string& text) {
  std::vector<std::int64_t> steps;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    steps.push_back(Json::parse(line, "line", 1).at("step").as_integer());
  return steps;
}

TEST(MetricsLog, lines_after_the_resumed_step_are_cut_and_written_again) {
  const TemporaryDirectory directory;
  const auto path = directory / "metrics.jsonl";
  {
    MetricsLog log(path, 0);
    for (int step = 1; step <= 15; ++step)
      log.append(at(step));
  }
  {
    MetricsLog log(path, 10);
    EXPECT_EQ(steps_in(slurp(path)).size(), 10u);
    log.append(at(11));
  }
  EXPECT_EQ(steps_in(slurp(path)), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  { MetricsLog log(path, 0); }
  EXPECT_EQ(slurp(path), "");
}

TEST(MetricsLog, a_partial_last_line_is_cut_and_a_line_without_a_step_is_kept) {
  const TemporaryDirectory directory;
  const auto path = directory / "metrics.jsonl";
  const auto whole = to_json_line(at(1), 5) + "a note\n" + to_json_line(at(2), 6);
  const auto next = to_json_line(at(3), 7);
  for (std::size_t torn = 0; torn <= next.size(); ++torn) {
    spit(path, whole + next.substr(0, torn));
    { MetricsLog log(path, 3); }
    EXPECT_EQ(slurp(path), torn == next.size() ? whole + next : whole) << torn;
  }
}

TEST(MetricsLog, a_full_disk_is_an_error_that_names_file_and_byte_and_leaves_whole_lines) {
  const SmallDisk disk(8192);
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a small file system";
  const auto path = disk.path() / "metrics.jsonl";
  MetricsLog log(path, 0);
  const auto fill = [&] {
    for (int step = 1; step < 1000; ++step)
      log.append(at(step));
  };
  const auto message = message_of<DataError>(fill);
  expect_contains(message, str("metrics.jsonl: at byte ", std::filesystem::file_size(path), ": "));
  EXPECT_EQ(slurp(path).back(), '\n');
  EXPECT_GT(steps_in(slurp(path)).size(), 3u);
}

TEST(MetricsLog, a_missing_directory_is_an_error_that_names_the_file) {
  const TemporaryDirectory directory;
  const auto path = directory / "none/metrics.jsonl";
  expect_refusal<DataError>("train/metrics_log", "no directory", {path.string() + ": "},
                            [&] { MetricsLog log(path, 0); });
}

}  // namespace lockstep::testing::metrics_log_test
