#include "train/observe/prometheus.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>

#include "tests/train/log.h"
#include "train/observe/metrics_page.h"

namespace lockstep::testing::prometheus_test {

// A strict reader of the text format (prometheus.io/docs/instrumenting/exposition_formats): it
// returns the value of each sample by name and labels. Violations of the format, or of the naming
// conventions, fail the test.
std::map<std::string, double> parse(const std::string& text) {
  static const std::regex help(R"(# HELP ([a-z_][a-z0-9_]*) (\S.*\S))");
  static const std::regex type(R"(# TYPE ([a-z_][a-z0-9_]*) (gauge|counter))");
  static const std::regex sample(
      R"re(([a-z_][a-z0-9_]*)\{([a-z_]+="([^"\\]|\\["\\n])*"(,[a-z_]+="([^"\\]|\\["\\n])*")*)\} (-?[0-9.e+-]+|[+-]Inf))re");
  std::map<std::string, double> values;
  std::set<std::string> families;
  std::string family, described;
  bool is_counter = false;
  EXPECT_TRUE(text.ends_with('\n'));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      described = match[1];
      EXPECT_TRUE(families.insert(described).second) << "twice: " << line;
      EXPECT_TRUE(described.starts_with("lockstep_")) << line;
    } else if (std::regex_match(line, match, type)) {
      family = match[1];
      EXPECT_EQ(family, described) << line;
      is_counter = match[2] == "counter";
      EXPECT_EQ(family.ends_with("_total"), is_counter) << line;
    } else if (std::regex_match(line, match, sample)) {
      EXPECT_EQ(match[1], family) << line;
      const double value = std::strtod(match[6].str().c_str(), nullptr);
      EXPECT_TRUE(values.emplace(str(family, "{", match[2].str(), "}"), value).second) << line;
      if (family.ends_with("_ratio")) {
        EXPECT_TRUE(value >= 0 && value <= 1) << line;
      }
      if (is_counter) {
        EXPECT_GE(value, 0) << line;
      }
    } else {
      ADD_FAILURE() << "not of the format: " << line;
    }
  }
  return values;
}

// Checks the text with Prometheus's own tool, if installed.
void expect_promtool_agrees(const std::string& text) {
  if (std::system("command -v promtool >/dev/null") != 0) return;
  const TemporaryDirectory directory;
  spit(directory / "metrics", text);
  const auto command = str("promtool check metrics < '", (directory / "metrics").string(), "' > '",
                           (directory / "said").string(), "' 2>&1");
  EXPECT_EQ(std::system(command.c_str()), 0) << slurp(directory / "said");
}

StepReport report() {
  StepReport r;
  r.step = 12;
  r.steps = 40;
  r.loss = 3.25;
  r.grad_norm = 0.5;
  r.learning_rate = 6e-4;
  r.step_seconds = 0.5;
  r.tokens_per_second = 2048;
  r.data_wait_seconds = 0.125;
  r.model_flops_utilization = 0.471;
  r.peak_bytes = std::int64_t{3} << 30;
  r.limit_bytes = std::int64_t{8} << 30;
  r.eta_seconds = 14;
  r.time[Component::attention] = 0.25;
  r.time[Component::checkpoint] = 2;
  r.evaluation_seconds = 4;
  r.joules_per_token = 0.75;
  r.gpu = GpuReading{.clock_mhz = 1755,
                     .power_watts = 612.5,
                     .temperature_celsius = 64,
                     .energy_joules = 1200,
                     .step_joules = 300,
                     .power_capped = true,
                     .slowed_by = {"heat"}};
  return r;
}

Exposed everything() {
  return {
      .run = "r",
      .steps = 40,
      .step = 12,
      .last_step_time_seconds = 1790000000.25,
      .report = report(),
      .time = report().time,
      .slowest = SlowestRank{.rank = 13, .seconds = 0.46, .median = 0.4},
      .validation_loss = 3.5,
      .gpu = report().gpu,
      .goodput = Goodput{.productive_seconds = 30,
                         .idle_seconds = 10,
                         .restarts = 2,
                         .phases = {.detect = 7, .load = 3}},
      .planned =
          PlanFile::Step{
              .seconds = 0.4, .mfu = 0.5, .components = {{"attention", 0.2}, {"optimizer", 0.1}}},
      .saves = {.step = 10, .time_seconds = 1789999990.5, .failures = 2},
      .copies = {{"archive", {.failures = 4}}, {"run", {.step = 5, .time_seconds = 1789999980}}},
      .checkpoint_interval_steps = 5,
      .tokens = 4096,
      .skipped_steps = 3,
      .nonfinite_steps = 2,
      .loss_spikes = 1,
      .energy_joules = 1200};
}

TEST(Prometheus, each_metric_has_its_name_unit_and_labels) {
  const auto text = prometheus_text(everything());
  const auto values = parse(text);
  const std::map<std::string, double> expected{
      {"lockstep_running", 1},
      {"lockstep_step", 12},
      {"lockstep_steps", 40},
      {"lockstep_last_step_timestamp_seconds", 1790000000.25},
      {"lockstep_eta_seconds", 14},
      {"lockstep_loss", 3.25},
      {"lockstep_validation_loss", 3.5},
      {"lockstep_gradient_norm", 0.5},
      {"lockstep_learning_rate", 6e-4},
      {"lockstep_tokens_total", 4096},
      {"lockstep_skipped_steps_total", 3},
      {"lockstep_nonfinite_steps_total", 2},
      {"lockstep_loss_spikes_total", 1},
      {"lockstep_checkpoint_interval_steps", 5},
      {"lockstep_checkpoint_step", 10},
      {"lockstep_checkpoint_timestamp_seconds", 1789999990.5},
      {"lockstep_checkpoint_failures_total", 2},
      {"lockstep_step_seconds", 0.5},
      {"lockstep_tokens_per_second", 2048},
      {"lockstep_mfu_ratio", 0.471},
      {"lockstep_median_rank_seconds", 0.4},
      {"lockstep_plan_mfu_ratio", 0.5},
      {"lockstep_plan_step_seconds", 0.4},
      {"lockstep_goodput_ratio", 0.75},
      {"lockstep_restarts", 2},
      {"lockstep_memory_used_bytes", 3221225472.0},
      {"lockstep_memory_limit_bytes", 8589934592.0},
      {"lockstep_gpu_clock_hertz", 1755e6},
      {"lockstep_gpu_power_watts", 612.5},
      {"lockstep_gpu_temperature_celsius", 64},
      {"lockstep_gpu_power_capped", 1},
      {"lockstep_gpu_throttled", 1},
      {"lockstep_gpu_energy_joules_total", 1200},
      {"lockstep_joules_per_token", 0.75}};
  for (const auto& [name, value] : expected) {
    const auto found = values.find(name + "{run=\"r\"}");
    ASSERT_NE(found, values.end()) << name;
    EXPECT_DOUBLE_EQ(found->second, value) << name;
  }
  EXPECT_EQ(values.at("lockstep_component_seconds{run=\"r\",component=\"attention\"}"), 0.25);
  EXPECT_EQ(values.at("lockstep_plan_component_seconds{run=\"r\",component=\"attention\"}"), 0.2);
  EXPECT_EQ(values.at("lockstep_slowest_rank_seconds{run=\"r\",rank=\"13\"}"), 0.46);
  EXPECT_EQ(values.at("lockstep_goodput_seconds{run=\"r\",kind=\"productive\"}"), 30);
  EXPECT_EQ(values.at("lockstep_goodput_seconds{run=\"r\",kind=\"idle\"}"), 10);
  EXPECT_EQ(values.at("lockstep_restart_seconds{run=\"r\",phase=\"detect\"}"), 7);
  EXPECT_EQ(values.at("lockstep_restart_seconds{run=\"r\",phase=\"load\"}"), 3);
  EXPECT_EQ(values.count("lockstep_component_seconds{run=\"r\",component=\"evaluation\"}"), 0u);
  EXPECT_EQ(values.at("lockstep_checkpoint_copy_step{run=\"r\",destination=\"run\"}"), 5);
  EXPECT_EQ(values.at("lockstep_checkpoint_copy_timestamp_seconds{run=\"r\",destination=\"run\"}"),
            1789999980);
  for (const auto& [to, failures] : {std::pair("run", 0), std::pair("archive", 4)})
    EXPECT_EQ(values.at(str("lockstep_checkpoint_copy_failures_total{run=\"r\",destination=\"", to,
                            "\"}")),
              failures);
  EXPECT_EQ(values.count("lockstep_checkpoint_copy_step{run=\"r\",destination=\"archive\"}"), 0u);
  expect_promtool_agrees(text);
}

TEST(Prometheus, unknown_values_are_omitted) {
  Exposed exposed{.run = "r", .report = StepReport(), .time = StepTime()};
  exposed.time->seconds.fill(std::nan(""));
  const auto text = prometheus_text(exposed);
  EXPECT_EQ(text.find("NaN"), text.npos);
  EXPECT_EQ(text.find("nan"), text.npos);
  for (const auto& [name, value] : parse(text))
    for (const char* absent :
         {"_loss{", "mfu", "gpu", "plan", "goodput", "component", "limit", "rank"})
      EXPECT_EQ(name.find(absent), name.npos) << name;
  expect_promtool_agrees(text);
}

TEST(Prometheus, unknown_throttling_is_not_reported_as_none) {
  auto exposed = everything();
  exposed.gpu->power_capped.reset();
  exposed.gpu->slowed_by.clear();
  for (const auto& [name, value] : parse(prometheus_text(exposed)))
    for (const char* absent : {"throttled", "capped"})
      EXPECT_EQ(name.find(absent), name.npos) << name;
}

TEST(Prometheus, before_the_first_step_only_known_values_are_present) {
  std::set<std::string> names;
  for (const auto& [name, value] : parse(prometheus_text({.run = "r", .steps = 40})))
    names.insert(name.substr(0, name.find('{')));
  EXPECT_EQ(names, (std::set<std::string>{
                       "lockstep_running", "lockstep_steps", "lockstep_last_step_timestamp_seconds",
                       "lockstep_tokens_total", "lockstep_skipped_steps_total",
                       "lockstep_nonfinite_steps_total", "lockstep_loss_spikes_total",
                       "lockstep_checkpoint_failures_total", "lockstep_data_wait_seconds_total",
                       "lockstep_checkpoint_seconds_total", "lockstep_evaluation_seconds_total"}));
}

TEST(Prometheus, non_finite_numbers_have_the_forms_of_the_format) {
  auto exposed = everything();
  exposed.report->loss = HUGE_VAL;
  expect_contains(prometheus_text(exposed), "lockstep_loss{run=\"r\"} +Inf\n");
  expect_promtool_agrees(prometheus_text(exposed));
}

TEST(Prometheus, any_name_of_a_run_is_a_label) {
  auto exposed = everything();
  exposed.run = "a \"b\"\\c\nd \xff";
  exposed.planned->components.front().name = "x\"y";
  const auto text = prometheus_text(exposed);
  EXPECT_FALSE(parse(text).empty());
  expect_contains(text, "{run=\"a \\\"b\\\"\\\\c\\nd \xef\xbf\xbd\"} 12\n");
  expect_contains(text, "component=\"x\\\"y\"");
  expect_promtool_agrees(text);
}

struct MetricsPageTest : ::testing::Test {
  static Config to_file(const std::string& file) {
    Config config;
    config.log.prometheus_file = file;
    return config;
  }

  TemporaryDirectory directory;
  const RunDirectory run{directory / "my run"};
  const std::filesystem::path path = run.path() / "metrics.prom";
};

double value(const std::filesystem::path& path, const std::string& name) {
  for (const auto& [key, number] : parse(slurp(path)))
    if (key.starts_with(name + "{")) return number;
  return std::nan("");
}

TEST_F(MetricsPageTest, counts_this_process_and_publishes_its_end) {
  auto config = to_file("metrics.prom");
  config.train.steps = 40;
  MetricsPage page(run, config);
  page.publish();
  EXPECT_EQ(value(path, "lockstep_running"), 1);
  EXPECT_EQ(value(path, "lockstep_steps"), 40);
  page.begin(11, Goodput{.restarts = 1});
  EXPECT_EQ(value(path, "lockstep_step"), 11);
  EXPECT_EQ(value(path, "lockstep_restarts"), 1);
  write_plan_file(run.plan(), {.step = {.seconds = 1, .mfu = 0.25}});
  auto first = report();
  first.slowest = SlowestRank{.rank = 3, .seconds = 0.5, .median = 0.25};
  page.show(first, Goodput{.productive_seconds = 1});
  EXPECT_EQ(value(path, "lockstep_step"), 12);
  EXPECT_EQ(value(path, "lockstep_plan_mfu_ratio"), 0.25);
  expect_contains(slurp(path), "{run=\"my run\"}");
  auto second = report();
  second.planned_utilization = 0.125;  // the peak was measured again
  second.step = 13;
  second.skipped = true;
  second.gpu.reset();
  second.time.seconds.fill(std::nan(""));
  second.evaluation_seconds = 0;
  page.show(second, Goodput{.productive_seconds = 2});
  EXPECT_EQ(value(path, "lockstep_step"), 12) << "at most once a second";
  page.end(Goodput{.productive_seconds = 2}, 0.5);
  EXPECT_EQ(value(path, "lockstep_running"), 0);
  EXPECT_EQ(value(path, "lockstep_step"), 13);
  EXPECT_EQ(value(path, "lockstep_plan_mfu_ratio"), 0.125);
  EXPECT_EQ(value(path, "lockstep_tokens_total"), 2048);
  EXPECT_EQ(value(path, "lockstep_skipped_steps_total"), 1);
  EXPECT_EQ(value(path, "lockstep_data_wait_seconds_total"), 0.25);
  EXPECT_EQ(value(path, "lockstep_checkpoint_seconds_total"), 2.5);
  EXPECT_EQ(value(path, "lockstep_evaluation_seconds_total"), 4);
  EXPECT_EQ(value(path, "lockstep_gpu_energy_joules_total"), 1200);
  expect_contains(slurp(path), "kind=\"productive\"} 2\n");
  expect_contains(slurp(path), "rank=\"3\"} 0.5\n");                // last comparison of ranks
  expect_contains(slurp(path), "component=\"attention\"} 0.25\n");  // timed step
  for (const auto& entry : std::filesystem::directory_iterator(run.path()))
    EXPECT_FALSE(entry.path().filename().string().starts_with("metrics.prom.")) << entry.path();
}

double now() {
  return static_cast<double>(std::time(nullptr));
}

TEST_F(MetricsPageTest, counts_saves_and_copies_and_their_failures) {
  auto config = to_file("metrics.prom");
  config.checkpoint.every_steps = 5;
  config.checkpoint.local_directory = "/local";
  MetricsPage page(run, config);
  page.begin(0, std::nullopt);
  // A counter has to be there before its first failure: an increase from nothing is no increase.
  EXPECT_EQ(value(path, "lockstep_checkpoint_failures_total"), 0);
  EXPECT_EQ(value(path, "lockstep_checkpoint_copy_failures_total"), 0);
  EXPECT_EQ(value(path, "lockstep_checkpoint_interval_steps"), 5);
  EXPECT_TRUE(std::isnan(value(path, "lockstep_checkpoint_step")));
  page.count_save(5, /*failed=*/false, "");
  page.count_save(5, false, kCopyToRun);
  page.count_save(10, true, "");
  page.count_save(10, true, kCopyToRun);
  page.publish();
  EXPECT_EQ(value(path, "lockstep_checkpoint_step"), 5);
  EXPECT_EQ(value(path, "lockstep_checkpoint_failures_total"), 1);
  EXPECT_EQ(value(path, "lockstep_checkpoint_copy_step"), 5);
  EXPECT_EQ(value(path, "lockstep_checkpoint_copy_failures_total"), 1);
  for (const char* name :
       {"lockstep_checkpoint_timestamp_seconds", "lockstep_checkpoint_copy_timestamp_seconds"})
    EXPECT_NEAR(value(path, name), now(), 100) << name;
  expect_contains(slurp(path), ",destination=\"run\"} 5\n");
}

TEST_F(MetricsPageTest, shows_the_newest_save_of_an_earlier_process) {
  spit(run.saved_step(), "20\n");
  const auto saved = std::filesystem::file_time_type::clock::now() - std::chrono::hours(2);
  std::filesystem::last_write_time(run.saved_step(), saved);
  MetricsPage page(run, to_file("metrics.prom"));
  page.publish();
  EXPECT_EQ(value(path, "lockstep_checkpoint_step"), 20);
  EXPECT_NEAR(value(path, "lockstep_checkpoint_timestamp_seconds"), now() - 7200, 100);
  page.begin(20, std::nullopt);
  EXPECT_NEAR(value(path, "lockstep_checkpoint_timestamp_seconds"), now() - 7200, 100);
  page.begin(15, std::nullopt);  // the checkpoint of step 20 is damaged
  EXPECT_EQ(value(path, "lockstep_checkpoint_step"), 15);
  EXPECT_TRUE(std::isnan(value(path, "lockstep_checkpoint_timestamp_seconds")));
  spit(run.saved_step(), "damaged");
  MetricsPage(run, to_file("metrics.prom")).publish();
  EXPECT_TRUE(std::isnan(value(path, "lockstep_checkpoint_step")));
}

TEST_F(MetricsPageTest, counts_spikes_of_the_loss_and_losses_that_are_not_finite) {
  MetricsPage page(run, to_file("metrics.prom"));
  const auto show = [&](double z, bool skipped, double valid_tokens) {
    auto step = report();
    step.loss_z = z;
    step.skipped = skipped;
    step.valid_tokens = static_cast<decltype(step.valid_tokens)>(valid_tokens);
    page.show(step, std::nullopt);
  };
  show(5.5, false, 32);
  show(6.5, false, 32);
  show(-7, false, 32);                       // a drop
  show(std::nan(""), /*skipped=*/true, 32);  // loss is not finite
  show(std::nan(""), /*skipped=*/true, 0);   // no token counts
  page.end(std::nullopt, 0);
  EXPECT_EQ(value(path, "lockstep_loss_spikes_total"), 1);
  EXPECT_EQ(value(path, "lockstep_nonfinite_steps_total"), 1);
  EXPECT_EQ(value(path, "lockstep_skipped_steps_total"), 2);
}

TEST_F(MetricsPageTest, the_file_may_be_anywhere_or_absent) {
  {
    MetricsPage page(run, to_file((directory / "x.prom").string()));
    page.show(report(), std::nullopt);
    EXPECT_EQ(value(directory / "x.prom", "lockstep_step"), 12);
  }
  {
    MetricsPage page(run, to_file(""));
    page.show(report(), std::nullopt);
    page.end(std::nullopt, 0);
  }
  MetricsPage lost(run, to_file((directory / "absent/x.prom").string()));
  expect_refusal<DataError>("train/prometheus", "a directory that is absent", {"absent/x.prom: "},
                            [&] { lost.show(report(), std::nullopt); });
}

TEST_F(MetricsPageTest, a_port_that_is_taken_is_a_warning) {
  const MetricsServer other("127.0.0.1", 0);
  Config config = to_file("metrics.prom");
  config.log.metrics_port = other.port();
  std::optional<MetricsPage> page;
  auto said = stderr_of([&] { page.emplace(run, config); });
  const auto port = std::to_string(other.port());
  expect_contains(said, port);
  said.replace(said.find(port), port.size(), "PORT");
  expect_wording("train/prometheus", "a port that is taken", said);
  page->show(report(), std::nullopt);
  EXPECT_EQ(value(path, "lockstep_step"), 12);
}

}  // namespace lockstep::testing::prometheus_test
