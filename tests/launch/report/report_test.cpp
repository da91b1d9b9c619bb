#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "core/json.h"
#include "launch/report/page.h"
#include "launch/report/step_parts.h"
#include "launch/report_verb.h"
#include "tests/captured.h"
#include "tests/wording.h"
#include "train/observe/metrics_log.h"

namespace lockstep::testing::report_test {

std::string line_of(std::int64_t step, double loss) {
  StepReport r;
  r.step = step;
  r.loss = loss;
  r.grad_norm = 0.5;
  r.learning_rate = 1e-3;
  r.step_seconds = 0.5;
  r.tokens_per_second = 2000;
  r.tokens_seen = 1000 * step;
  r.time[Component::products] = 0.3;
  if (step % 10 == 0) r.validation_loss = loss + 0.1;
  return to_json_line(r, 1.7e9 + static_cast<double>(step));
}

void write_metrics(const std::filesystem::path& run, const std::string& text) {
  std::filesystem::create_directories(run);
  spit(run / "metrics.jsonl", text);
}

void make_run(const std::filesystem::path& run, int steps) {
  std::string text;
  for (int step = 1; step <= steps; ++step)
    text += line_of(step, step == 700 ? 50 : 3 + 1.0 / step);
  write_metrics(run, text);
}

// A temporary directory, and the path of a run in it that does not exist yet.
struct Report : ::testing::Test {
  TemporaryDirectory directory;
  std::filesystem::path run = directory / "run";
};

Json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const auto at = page.find(open) + open.size();
  return Json::parse(page.substr(at, page.find("</script>", at) - at), "the page's data", 16);
}

Json data_of_run(const std::filesystem::path& run, std::size_t most = 4096) {
  return Json::parse(report_data({read_run(run, most)}, "lockstep 1.2.3", 0), "data", 16)
      .at("runs")
      .as_array()[0];
}

TEST_F(Report, text_of_files_is_escaped_in_the_page) {
  const std::string evil = "</script><script>alert(1)<!-- {{data}} {{title}} &amp; \xff";
  make_run(directory / "plain", 5);
  const auto evil_run = directory.path() / "<script>alert('x')<|script>{{title}}";
  make_run(evil_run, 5);
  spit(evil_run / "config.toml",
       "[log]\nsample_prompt = '" + evil.substr(0, evil.size() - 1) + "'  # </script><script>\n");
  write_plan_file(evil_run / "plan.json",
                  {.step = {.seconds = 1, .components = {{"</script>", 1}}}, .cluster = "<img>"});
  spit(evil_run / "numerics.json", R"({"device":"<b>GPU</b>"})");
  const auto record = read_run(evil_run, 64);
  EXPECT_TRUE(record.notes.empty()) << record.notes[0];
  const auto page = report_page({record}, "lockstep 1.2.3", 1.7e9);
  // Text of files is only in the title, escaped, and in the data, without any '<'.
  const auto plain = report_page({read_run(directory / "plain", 64)}, "lockstep 1.2.3", 1.7e9);
  const auto count = [](const std::string& text, const std::string& what) {
    int n = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; ++at)
      ++n;
    return n;
  };
  EXPECT_EQ(count(page, "<"), count(plain, "<"));
  EXPECT_NE(page.find("<title>&lt;script>alert('x')&lt;|script>{{title}} - Lockstep"), page.npos);
  const auto data = data_of(page);
  const auto& one = data.at("runs").as_array()[0];
  EXPECT_EQ(one.at("name").as_string(), "<script>alert('x')<|script>{{title}}");
  EXPECT_EQ(one.at("plan").at("cluster").as_string(), "<img>");
  EXPECT_EQ(one.at("environment").as_array()[0].as_array()[1].as_string(), "<b>GPU</b>");
}

TEST_F(Report, curves_have_every_line_of_a_short_run_and_the_extremes_of_a_long_one) {
  make_run(run, 1000);
  const auto all = data_of_run(run);
  EXPECT_EQ(all.at("points").at("lines_each").as_integer(), 1);
  EXPECT_EQ(all.at("points").at("loss").as_array().size(), 1000u);
  EXPECT_EQ(all.at("points").at("loss").as_array()[1].as_double(), 3.5);
  EXPECT_EQ(all.at("points").find("loss_high"), nullptr);
  EXPECT_EQ(all.at("evaluations").at("step").as_array().size(), 100u);
  EXPECT_EQ(all.at("evaluations").at("step").as_array()[99].as_integer(), 1000);
  const auto few = data_of_run(run, 64);
  const auto& high = few.at("points").at("loss_high").as_array();
  EXPECT_EQ(few.at("points").at("lines_each").as_integer(), 16);
  ASSERT_EQ(high.size(), 63u);
  EXPECT_EQ(high[699 / 16].as_double(), 50);
  EXPECT_EQ(few.at("figures").at("last_step").as_integer(), 1000);
  EXPECT_EQ(few.at("figures").at("best_step").as_integer(), 1000);
  EXPECT_NEAR(few.at("figures").at("best_validation_loss").as_double(), 3.101, 1e-4);
}

TEST_F(Report, medians_are_over_steps_and_not_over_points) {
  std::string text;
  for (int step = 1; step <= 2000; ++step)  // every 25th takes ten times as long
    text += str(R"({"step":)", step, R"(,"step_seconds":)", step % 25 == 0 ? 4 : 0.4,
                R"(,"other_seconds":)", step % 25 == 0 ? 3.7 : 0.1, "}\n");
  write_metrics(run, text);
  for (const std::size_t most : {16u, 64u, 4096u}) {
    const auto data = data_of_run(run, most);
    EXPECT_EQ(data.at("figures").at("step_seconds").as_double(), 0.4) << most;
    EXPECT_EQ(data.at("parts").as_array()[0].at("measured").as_double(), 0.1) << most;
  }
}

// Seconds that a step waits for data, in the page of a run with these metrics.
double waits_shown(const std::filesystem::path& run, const std::string& metrics) {
  write_metrics(run, metrics);
  const auto data = data_of_run(run, 16);
  const auto& part = data.at("parts").as_array()[1];
  EXPECT_EQ(part.at("name").as_string(), "data");
  return part.at("measured").as_double();
}

TEST_F(Report, rare_waits_for_data_are_a_mean_over_all_steps) {
  std::string text;
  for (int step = 1; step <= 100; ++step)
    text +=
        str(R"({"step":)", step, R"(,"step_seconds":0.5,"products_seconds":0.4,"data_seconds":)",
            step % 10 == 0 ? 0.8 : 0, "}\n");
  EXPECT_NEAR(waits_shown(run, text), 0.08, 1e-6);
}

// Only some steps of a GPU are timed, but the wait for data is known for every step.
TEST_F(Report, waits_for_data_include_steps_that_were_not_timed) {
  std::string text;
  for (int step = 1; step <= 100; ++step)
    text +=
        str(R"({"step":)", step, R"(,"step_seconds":0.5,"data_wait_seconds":)",
            step == 1    ? 5
            : step == 50 ? 1
                         : 0,
            step % 20 == 1 ? str(R"(,"products_seconds":0.4,"data_seconds":)", step == 1 ? 5 : 0)
                           : std::string(R"(,"products_seconds":null,"data_seconds":null)"),
            "}\n");
  EXPECT_NEAR(waits_shown(run, text), 0.06, 1e-6);
}

TEST_F(Report, points_and_evaluations_share_a_clock_that_never_goes_back) {
  std::string text;
  for (int step = 1; step <= 40; ++step) {
    const double wrong = step <= 15 ? 0 : step <= 30 ? -1000 : 1e9;  // error of the clock
    text += str(R"({"step":)", step, R"(,"loss":3,"validation_loss":3,"time_seconds":)",
                static_cast<std::int64_t>(1.7e9 + 10 * step + wrong), "}\n");
  }
  write_metrics(run, text);
  const auto data = data_of_run(run);
  const auto& points = data.at("points").at("seconds").as_array();
  const auto& evaluations = data.at("evaluations").at("seconds").as_array();
  ASSERT_EQ(points.size(), 40u);
  ASSERT_EQ(evaluations.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) {
    const int lost = i < 15 ? 0 : i < 30 ? 10 : 20;
    EXPECT_EQ(points[i].as_double(), 10.0 * static_cast<double>(i) - lost) << i;
    EXPECT_EQ(evaluations[i].as_double(), points[i].as_double()) << i;
  }
  EXPECT_EQ(data.at("figures").at("end_seconds").as_double(), 1.7e9 + 10 + 370);
}

TEST_F(Report, a_run_may_begin_at_any_step_and_with_a_line_out_of_order) {
  write_metrics(run, line_of(501, 3));
  const auto alone = read_run(run, 64);
  EXPECT_EQ(alone.last.step, 501);
  EXPECT_TRUE(alone.notes.empty());
  spit(run / "metrics.jsonl", line_of(3, 3) + line_of(2, 3) + line_of(3, 3));
  const auto record = read_run(run, 64);
  EXPECT_EQ(record.first.step, 2);
  EXPECT_EQ(record.last.step, 3);
  ASSERT_EQ(record.notes.size(), 1u);
  for (const char* pin : {"line 1", "step 3", "step 2"})
    expect_contains(record.notes[0], pin);
  expect_wording("launch/report", "steps that go back", record.notes[0]);
}

TEST_F(Report, a_page_lists_eight_hosts_and_the_number_of_all) {
  make_run(run, 3);
  LedgerLine start{.kind = LedgerLine::Kind::start, .ranks = 800};
  for (int i = 0; i < 100; ++i)
    start.hosts.push_back(str("host-", i));
  spit(run / "ledger.jsonl", to_json_line(start));
  const auto data = data_of_run(run);
  const auto& one = data.at("goodput").at("starts").as_array()[0];
  EXPECT_EQ(one.at("hosts").as_array().size(), 8u);
  EXPECT_EQ(one.at("host_count").as_integer(), 100);
}

TEST_F(Report, a_run_without_steps_is_an_error_that_names_the_file) {
  const auto refused = [&](const std::string& name, std::initializer_list<std::string> pins) {
    expect_refusal<DataError>("launch/report", name, pins, [&] { read_run(run, 64); });
  };
  refused("no run", {run.string()});
  write_metrics(run, "");
  refused("no step", {"metrics.jsonl"});
  spit(run / "metrics.jsonl", "junk\n");
  refused("damaged", {"metrics.jsonl", "line 1"});
}

TEST_F(Report, damaged_files_and_lines_become_notes) {
  make_run(run, 3);
  {
    std::ofstream(run / "metrics.jsonl", std::ios::app)
        << "junk\n"
        << line_of(600, 1) << line_of(4, 1).substr(0, 9);
  }
  spit(run / "plan.json", R"({"format": "lockstep plan 1", "step_seconds": "soon"})");
  spit(run / "config.toml", "[train\n");
  spit(run / "numerics.json", "{");
  spit(run / "ledger.jsonl",
       to_json_line({.kind = LedgerLine::Kind::start, .ranks = 1}) + "junk\n");
  std::filesystem::create_directories(run / "checkpoints" / "step-00000002");
  const auto record = read_run(run, 64);
  EXPECT_EQ(record.lines, 3);
  std::string notes, wording;
  for (const auto& note : record.notes) {
    notes += note + "\n";
    const bool is_of_a_parser =
        std::ranges::any_of(std::array{"config.toml: ", "numerics.json: ", "ledger.jsonl: "},
                            [&](const char* file) { return note.find(file) != note.npos; });
    if (!is_of_a_parser) wording += note + "\n";
  }
  for (const std::string pin :
       {"metrics.jsonl: 1 of 5", "line 4: ", "9 bytes", "step 600", "step 3",
        "plan.json: step_seconds: ", "config.toml:", "step-00000002", "ledger.jsonl: line 2: "})
    expect_contains(notes, pin);
  expect_wording("launch/report", "notes", wording);
  EXPECT_FALSE(record.goodput.has_value());
  EXPECT_EQ(data_of_run(run).find("goodput"), nullptr);
}

// docs/observability.md names these parts and starts; train/observe/ledger computes them.
TEST_F(Report, the_page_divides_the_time_of_a_run_into_parts_and_starts) {
  using Kind = LedgerLine::Kind;
  make_run(run, 3);
  EXPECT_EQ(data_of_run(run).find("goodput"), nullptr);
  const auto steps = [](double time, std::int64_t first, std::int64_t last, double checkpoint) {
    return to_json_line({.kind = Kind::steps,
                         .time_seconds = time,
                         .first = first,
                         .last = last,
                         .step_seconds = static_cast<double>(last - first + 1),
                         .checkpoint_seconds = checkpoint});
  };
  const auto start = [](double time, std::int64_t step, RestartSeconds restart = {}) {
    return to_json_line({.kind = Kind::start,
                         .time_seconds = time,
                         .step = step,
                         .ranks = 2,
                         .hosts = {"a"},
                         .restart = restart});
  };
  // The first start takes 5 s to its first step, 20 s for 20 steps and 2 s for a save. It is killed
  // after 3 s without work. The second start follows 7 s later and replays 8 of the steps.
  spit(run / "ledger.jsonl",
       start(1000, 0) + steps(1025, 1, 20, 0) + steps(1030, 21, 20, 2) +
           start(1037, 12, {.judge = 0, .prepare = 3}) + steps(1046, 13, 20, 0) +
           to_json_line(
               {.kind = Kind::end, .time_seconds = 1046, .step = 20, .exit_code = 75, .why = "x"}));
  const auto goodput = data_of_run(run).at("goodput");
  EXPECT_EQ(goodput.at("wall_seconds").as_double(), 46);
  const std::map<std::string, double> expected{
      {"productive", 20}, {"replayed", 8},   {"restart", 6}, {"checkpoint", 2},
      {"data", 0},        {"evaluation", 0}, {"idle", 10}};
  for (const auto& [part, seconds] : goodput.at("seconds").as_object())
    EXPECT_EQ(seconds.as_double(), expected.at(part)) << part;
  EXPECT_EQ(goodput.at("seconds").as_object().size(), expected.size());
  const auto& starts = goodput.at("starts").as_array();
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].dump(),
            R"({"begin":1000.0,"first_step":1005.0,"replayed_from":1017.0,"end":1030.0,)"
            R"("from_step":0,"last_step":20,"ranks":2,"hosts":["a"],"host_count":1,"why":"",)"
            R"("replays_seconds":0,"phases":{}})");
  EXPECT_EQ(starts[1].at("exit_code").as_integer(), 75);
  EXPECT_EQ(starts[1].at("replayed_from").as_double(), 1046);
  EXPECT_EQ(starts[1].at("replays_seconds").as_integer(), 8);
  const char* phases = R"({"detect":4,"prepare":3,"setup":1})";
  EXPECT_EQ(starts[1].at("phases").dump(), phases);
  EXPECT_EQ(goodput.at("phases").dump(), phases);
}

TEST_F(Report, derived_values_and_origins_are_read_from_a_configuration) {
  spit(directory / "config.toml",
       "[model]\n"
       "layers = 12                             # configs/a.toml:3\n"
       "# head_size = 64                        # default: model.width / model.heads\n"
       "# a remark = of a person\n"
       "[data]\n"
       "train = [\"a # b\", \"c\"]  # --set\n"
       "[[data.source]]\n"
       "path = \"x\"\n");
  const auto values = read_configuration(directory.path());
  const auto find = [&](const std::string& key) {
    for (const auto& value : values)
      if (value.key == key) return value.value + " | " + value.origin;
    return std::string("none");
  };
  EXPECT_EQ(find("model.layers"), "12 | configs/a.toml:3");
  EXPECT_EQ(find("model.head_size"), "64 | default: model.width / model.heads");
  EXPECT_EQ(find("data.train"), R"(["a # b", "c"] | --set)");
  EXPECT_EQ(values.size(), 4u);
  EXPECT_TRUE(read_configuration(directory / "nowhere").empty());
}

TEST_F(Report, parts_of_a_step_have_measured_planned_and_corrected_times) {
  PlanFile plan;
  plan.step.components = {{"products", 0.3}, {"optimizer", 0.1}, {"warp_drive", 0.2}};
  plan.corrected = PlanFile::Step{.components = {{"products", 0.35}}};
  const auto measured = [](Metric metric) {
    return metric == part(Component::products)     ? 0.4
           : metric == part(Component::attention)  ? 0.1
           : metric == part(Component::data)       ? 0.0
           : metric == part(Component::checkpoint) ? 0.7
           : metric == Metric::step_seconds        ? 0.75
                                                   : StepMetrics::kUnknown;
  };
  const auto times = times_of_step(&plan, measured);
  const auto& parts = times.parts;
  std::vector<std::string> names;
  for (const auto& part : parts)
    names.push_back(part.name);
  EXPECT_EQ(names, (std::vector<std::string>{"products", "attention", "optimizer", "other",
                                             "warp_drive"}));
  EXPECT_EQ(parts[0].planned, 0.3);
  EXPECT_EQ(parts[0].corrected, 0.35);
  EXPECT_EQ(parts[0].measured, 0.4);
  EXPECT_EQ(parts[1].planned, 0);
  EXPECT_TRUE(std::isnan(parts[2].measured));
  EXPECT_NEAR(parts[3].measured, 0.25, 1e-12);
  EXPECT_EQ(times.checkpoints->measured, 0.7);  // not a part of the step
  EXPECT_EQ(times.whole.measured, 0.75);
  EXPECT_NEAR(times.share(parts[3]), 1.0 / 3, 1e-12);
  EXPECT_TRUE(std::isnan(times_of_step(nullptr, measured).parts[0].planned));
  plan.step.components.push_back({"checkpoint", 0.5});
  EXPECT_EQ(times_of_step(&plan, measured).checkpoints->planned, 0.5);
}

TEST_F(Report, a_run_that_ends_with_a_loss_of_nan_has_its_last_finite_loss) {
  make_run(run, 20);
  EXPECT_EQ(data_of_run(run).at("figures").find("finite_step"), nullptr);
  {
    std::ofstream file(run / "metrics.jsonl", std::ios::app);
    for (int step = 21; step <= 30; ++step)
      file << line_of(step, std::nan(""));
  }
  const auto figures = data_of_run(run).at("figures");
  EXPECT_EQ(figures.find("loss"), nullptr);
  EXPECT_EQ(figures.at("finite_step").as_integer(), 20);
  EXPECT_EQ(figures.at("finite_loss").as_double(), 3.05);
}

TEST_F(Report, runs_without_a_step_are_left_out_of_a_page_of_several) {
  make_run(directory / "a", 3);
  std::filesystem::create_directories(directory / "empty");
  spit(directory / "empty" / "metrics.jsonl", "");
  const auto a = (directory / "a").string(), empty = (directory / "empty").string();
  const auto page = (directory / "page.html").string();
  std::string said;
  stdout_of([&] {
    said = stderr_of([&] {
      EXPECT_EQ(run_report({.runs = {empty, a, (directory / "none").string()}, .out = page}), 0);
    });
  });
  expect_contains(said, empty + "/metrics.jsonl: ");
  expect_wording("launch/report", "runs that are left out", said);
  const auto data = data_of(slurp(page));
  EXPECT_EQ(data.at("runs").as_array().size(), 1u);
  EXPECT_EQ(data.at("runs").as_array()[0].at("name").as_string(), "a");
  ASSERT_EQ(data.at("notes").as_array().size(), 2u);
  expect_contains(data.at("notes").as_array()[1].as_string(), "none: ");
  stderr_of([&] {
    expect_refusal<DataError>("launch/report", "no run with a step", {empty + "/metrics.jsonl"},
                              [&] {
                                run_report({.runs = {empty, empty}, .out = page});
                              });
  });
}

TEST_F(Report, a_page_that_cannot_be_written_is_an_error_with_the_remedy) {
  make_run(run, 3);
  const auto page = (directory / "no" / "page.html").string();
  expect_refusal<DataError>("launch/report", "a page that cannot be written", {page, "--out"},
                            [&] { run_report({.runs = {run.string()}, .out = page}); });
}

TEST_F(Report, a_page_is_in_the_directory_of_one_run_and_at_out_for_several) {
  make_run(directory / "a" / "run", 3);
  make_run(directory / "b" / "run", 3);
  const auto a = (directory / "a" / "run").string(), b = (directory / "b" / "run").string();
  expect_contains(stdout_of([&] { EXPECT_EQ(run_report({.runs = {a}, .out = ""}), 0); }),
                  "run/report.html  ");
  EXPECT_EQ(data_of(slurp(directory / "a" / "run" / "report.html")).at("format").as_string(),
            "lockstep report 1");
  const auto refused = [](const std::string& name, std::initializer_list<std::string> pins,
                          const std::vector<std::string>& runs, const std::string& out) {
    expect_refusal<UsageError>("launch/report", name, pins,
                               [&] { run_report({.runs = runs, .out = out}); });
  };
  refused("several runs without --out", {"--out"}, {a, b}, "");
  refused("--out is a directory", {"--out", b}, {a}, b);
  refused("17 runs", {"16", "17"}, std::vector<std::string>(17, a), "x");
  const auto page = (directory / "both.html").string();
  stdout_of([&] { EXPECT_EQ(run_report({.runs = {a, b}, .out = page}), 0); });
  const auto both = data_of(slurp(page));
  const auto& runs = both.at("runs").as_array();
  EXPECT_EQ(runs[0].at("name").as_string(), a);  // the directories have the same name
  EXPECT_EQ(runs[1].at("name").as_string(), b);
}

TEST_F(Report, only_earlier_pages_are_overwritten) {
  make_run(run, 3);
  const auto report_to = [&](const std::string& out) {
    stdout_of([&] { EXPECT_EQ(run_report({.runs = {run.string()}, .out = out}), 0); });
  };
  const auto refused = [&](const std::string& out, const std::filesystem::path& named) {
    expect_refusal<UsageError>("launch/report", str("--out ", out.empty() ? "(none)" : out),
                               {"--out", named.string()},
                               [&] { run_report({.runs = {run.string()}, .out = out}); });
  };
  const auto metrics = run / "metrics.jsonl", page = directory / "page.html";
  const auto before = slurp(metrics);
  refused(metrics.string(), run / "metrics-report.html");
  EXPECT_EQ(slurp(metrics), before);
  spit(page, "<!doctype html>\n<title>of a person</title>" + std::string(1000, ' '));
  refused(page.string(), page);
  spit(run / "report.html", "what a person wrote of the run");
  refused("", run / "report.html");
  EXPECT_EQ(slurp(run / "report.html"), "what a person wrote of the run");
  spit(page, "");
  report_to(page.string());
  make_run(run, 5);
  report_to(page.string());
  EXPECT_EQ(data_of(slurp(page)).at("runs").as_array()[0].at("points").at("step").as_array().size(),
            5u);
  report_to("/dev/null");
}

TEST_F(Report, the_points_of_a_page_are_bounded_for_any_number_of_runs) {
  for (std::size_t runs = 1; runs <= kMostRunsOfPage; ++runs) {
    EXPECT_GE(points_of_page(runs), 1024u);
    EXPECT_LE(points_of_page(runs) * runs, std::size_t{4} * 4096);
    EXPECT_EQ(points_of_page(runs) % 2, 0u);
  }
}

}  // namespace lockstep::testing::report_test
