#include "train/observe/ledger.h"

#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <thread>

#include "tests/train/log.h"

namespace lockstep::testing::ledger_test {

using Kind = LedgerLine::Kind;
using Clock = std::chrono::steady_clock;

LedgerLine start_at(double time, std::int64_t step) {
  return {.kind = Kind::start, .time_seconds = time, .step = step, .ranks = 2, .hosts = {"a"}};
}
LedgerLine end_at(double time, std::int64_t step) {
  return {.kind = Kind::end, .time_seconds = time, .step = step, .exit_code = 75, .why = "x"};
}
LedgerLine steps_at(double time, std::int64_t first, std::int64_t last, double step,
                    double data = 0, double checkpoint = 0, double evaluation = 0) {
  return {.kind = Kind::steps,
          .time_seconds = time,
          .first = first,
          .last = last,
          .step_seconds = step,
          .data_seconds = data,
          .checkpoint_seconds = checkpoint,
          .evaluation_seconds = evaluation};
}

constexpr const char* kReader = "train/ledger";

void expect_goodput(const Goodput& g, std::array<double, 7> parts, std::int64_t restarts) {
  for (std::size_t i = 0; i < parts.size(); ++i)
    EXPECT_NEAR(g.parts()[i].second, parts[i], 1e-6) << g.parts()[i].first;
  EXPECT_EQ(g.restarts, restarts);
}

TEST(Ledger, each_second_of_a_run_that_ended_once_is_in_one_part) {
  const std::vector lines{start_at(100, 0), steps_at(112, 1, 4, 8, 1, 0.5, 1.5),
                          steps_at(122, 5, 10, 9, 0, 1, 0), end_at(122.5, 10)};
  // productive, replayed, restart, checkpoint, data, evaluation, idle
  expect_goodput(goodput_of(lines), {16, 0, 2, 1.5, 1, 1.5, 0.5}, 0);
  EXPECT_NEAR(goodput_of(lines).wall_seconds(), 22.5, 1e-9);
  EXPECT_NEAR(goodput_of(lines).ratio(), 16 / 22.5, 1e-9);
}

TEST(Ledger, steps_after_the_one_that_a_start_resumes_from_are_replayed) {
  // Killed after step 20, resumed from 12, killed after 15, then resumed from the older 4.
  const std::vector lines{
      start_at(0, 0),       steps_at(11, 1, 10, 10), steps_at(21, 11, 20, 10, 5),
      start_at(31, 12),     steps_at(35, 13, 15, 3), start_at(36, 4),
      steps_at(38, 5, 6, 2)};
  // Of 11 to 20, 5 s of work, eight tenths first, the rest with 5 to 10 (6 s), and 13 to 15.
  expect_goodput(goodput_of(lines), {4 + 2, 4 + 1 + 6 + 3, 1 + 1 + 0, 0, 5, 0, 10 + 1}, 2);
  EXPECT_NEAR(goodput_of(lines).wall_seconds(), 38, 1e-9);
}

TEST(Ledger, a_clock_that_goes_back_between_starts_makes_no_negative_time) {
  const std::vector lines{start_at(1000, 0), steps_at(1011, 1, 10, 10), end_at(1011, 10),
                          start_at(500, 10), steps_at(503, 11, 12, 2)};
  expect_goodput(goodput_of(lines), {12, 0, 2, 0, 0, 0, 0}, 1);
  EXPECT_DOUBLE_EQ(goodput_of(lines).wall_seconds(), 14);
  const auto second = starts_of(lines)[1];
  EXPECT_DOUBLE_EQ(second.begin_seconds, 1011);
  EXPECT_DOUBLE_EQ(second.first_step_seconds, 1012);
  EXPECT_DOUBLE_EQ(second.end_seconds, 1014);
  // Set back within a line too, for example by hand.
  const std::vector odd{start_at(1000, 0), steps_at(900, 1, 10, 10), end_at(800, 10)};
  expect_goodput(goodput_of(odd), {10, 0, 0, 0, 0, 0, 0}, 0);
  EXPECT_EQ(starts_of(odd)[0].end_seconds, 1010);
}

// The first start's clock was wrong before it was set. Later times are correct all the same.
TEST(Ledger, a_gap_of_years_counts_as_zero_seconds) {
  const double now = 1.79e9;
  const std::vector lines{start_at(100, 0), steps_at(110, 1, 4, 8), end_at(110, 4),
                          start_at(now, 4), steps_at(now + 10, 5, 8, 9)};
  expect_goodput(goodput_of(lines), {17, 0, 3, 0, 0, 0, 0}, 1);
  EXPECT_NEAR(starts_of(lines).back().begin_seconds, 110, 1e-6);
  const TemporaryDirectory directory;
  std::string text;
  for (const auto& line : lines)
    text += to_json_line(line);
  spit(directory / "ledger.jsonl", text);
  expect_log(kReader, "a clock that was wrong by years", {"ledger.jsonl: "},
             [&] { Ledger(directory / "ledger.jsonl", {.began = Clock::now(), .step = 8}); });
}

// Compared with a model that assigns each second to one part, and moves replayed steps.
TEST(Ledger, parts_sum_to_the_wall_time_however_runs_are_killed) {
  std::mt19937 random{std::random_device{}()};
  const auto draw = [&](double most) {
    return std::uniform_real_distribution<double>(0, most)(random);
  };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<LedgerLine> lines;
    std::array<double, 7> parts{};
    std::vector<double> step_seconds;  // of each counted step, one per line
    double now = 1e9;
    for (int starts = 0; starts < 5; ++starts) {
      const auto from =
          static_cast<std::size_t>(draw(static_cast<double>(step_seconds.size()) + 0.999));
      if (starts > 0)
        parts[6] += lines.back().time_seconds < now ? now - lines.back().time_seconds : 0;
      lines.push_back(start_at(now, static_cast<std::int64_t>(from)));
      while (step_seconds.size() > from) {
        parts[0] -= step_seconds.back();
        parts[1] += step_seconds.back();
        step_seconds.pop_back();
      }
      for (int i = 0, n = static_cast<int>(draw(4)); i < n; ++i) {
        const double setup = i == 0 ? draw(9) : 0, step = draw(5), data = draw(step);
        const double checkpoint = draw(2), evaluation = draw(2);
        now += setup + step + checkpoint + evaluation;
        step_seconds.push_back(step - data);
        const auto number = static_cast<std::int64_t>(step_seconds.size());
        lines.push_back(steps_at(now, number, number, step, data, checkpoint, evaluation));
        parts[0] += step - data;
        parts[2] += setup;
        parts[3] += checkpoint;
        parts[4] += data;
        parts[5] += evaluation;
      }
      if (draw(1) < 0.5) lines.push_back(end_at(now, 0));
      now += draw(100);
    }
    const auto goodput = goodput_of(lines);
    expect_goodput(goodput, parts, 4);
    EXPECT_NEAR(goodput.wall_seconds(), lines.back().time_seconds - lines.front().time_seconds,
                1e-5);
  }
}

TEST(Ledger, productive_time_is_not_negative_if_all_steps_are_replayed) {
  // 3.1 + 5.9 + 5.4 - 5.4 - 5.9 - 3.1 is -4e-16.
  const std::vector lines{start_at(0, 0), steps_at(3.1, 1, 1, 3.1), steps_at(9, 2, 2, 5.9),
                          steps_at(14.4, 3, 3, 5.4), start_at(14.4, 0)};
  EXPECT_EQ(goodput_of(lines).productive_seconds, 0);
}

TEST(Ledger, starts_have_their_times) {
  // Steps 21 to 30 were replayed: two of the six steps of the second line, and the third line.
  const std::vector lines{start_at(1000, 0),
                          steps_at(1110, 1, 16, 80, 8, 10, 5),
                          steps_at(1170, 17, 22, 60),
                          steps_at(1250, 23, 30, 80),
                          start_at(1300, 20),
                          steps_at(1420, 21, 30, 100, 0, 4, 0),
                          end_at(1425, 30)};
  expect_goodput(goodput_of(lines), {72 + 40 + 100, 20 + 80, 15 + 16, 14, 8, 5, 50 + 5}, 1);
  const auto starts = starts_of(lines);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_DOUBLE_EQ(starts[0].begin_seconds, 1000);
  EXPECT_DOUBLE_EQ(starts[0].first_step_seconds, 1015);
  EXPECT_DOUBLE_EQ(starts[0].replayed_from_seconds, 1150);
  EXPECT_DOUBLE_EQ(starts[0].end_seconds, 1250);
  EXPECT_EQ(starts[0].last_step, 30);
  EXPECT_EQ(starts[0].ranks, 2);
  EXPECT_EQ(starts[0].hosts, std::vector<std::string>{"a"});
  EXPECT_FALSE(starts[0].exit_code.has_value());
  EXPECT_EQ(starts[1].from_step, 20);
  EXPECT_DOUBLE_EQ(starts[1].first_step_seconds, 1316);
  EXPECT_DOUBLE_EQ(starts[1].replayed_from_seconds, 1425);
  EXPECT_EQ(starts[1].exit_code, 75);
  EXPECT_EQ(starts[1].why, "x");
}

// A third start may replay steps of the first one.
TEST(Ledger, steps_of_several_starts_can_be_replayed) {
  const std::vector lines{start_at(0, 0),         steps_at(10, 1, 10, 10), start_at(10, 8),
                          steps_at(14, 9, 12, 4), start_at(14, 4),         steps_at(16, 5, 6, 2)};
  const auto starts = starts_of(lines);
  EXPECT_DOUBLE_EQ(starts[0].replayed_from_seconds, 4);
  EXPECT_DOUBLE_EQ(starts[1].replayed_from_seconds, 10);
  EXPECT_DOUBLE_EQ(starts[2].replayed_from_seconds, 16);
}

// first = last + 1: no step, only a save after the last one.
TEST(Ledger, a_save_after_the_last_step_replays_no_step) {
  const std::vector lines{start_at(0, 0), steps_at(10, 1, 10, 10), steps_at(13, 11, 10, 0, 0, 3, 0),
                          start_at(15, 10)};
  expect_goodput(goodput_of(lines), {10, 0, 0, 3, 0, 0, 2}, 1);
  EXPECT_DOUBLE_EQ(starts_of(lines)[0].replayed_from_seconds, 13);
  auto back = lines;
  back.back().step = 5;
  expect_goodput(goodput_of(back), {5, 5, 0, 3, 0, 0, 2}, 1);
  EXPECT_DOUBLE_EQ(starts_of(back)[0].replayed_from_seconds, 5);
}

TEST(Ledger, the_last_line_is_read_alone) {
  const TemporaryDirectory directory;
  const auto path = directory / "ledger.jsonl";
  EXPECT_FALSE(read_last_line(path).has_value());
  const auto start = to_json_line(start_at(1, 0)), end = to_json_line(end_at(9, 3));
  const std::string long_line = std::string(300'000, 'x') + "\n";
  const std::pair<std::string, std::optional<Kind>> files[] = {{"", {}},
                                                               {end, Kind::end},
                                                               {start + end, Kind::end},
                                                               {start + end + start, Kind::start},
                                                               {start + end + "{\"torn", Kind::end},
                                                               {long_line + end, Kind::end},
                                                               {start + long_line, {}}};
  for (const auto& [text, kind] : files) {
    spit(path, text);
    const auto last = read_last_line(path);
    ASSERT_EQ(last.has_value(), kind.has_value()) << text.substr(0, 1000);
    if (!last) continue;
    EXPECT_EQ(last->kind, *kind);
    EXPECT_EQ(last->time_seconds, *kind == Kind::end ? 9 : 1);
    EXPECT_EQ(last->exit_code, *kind == Kind::end ? 75 : 0);
  }
  auto large = start_at(2, 3);
  large.hosts.assign(4000, "a-host-whose-name-is-as-long-as-they-come.example.org");
  spit(path, end + to_json_line(large));
  EXPECT_EQ(read_last_line(path)->hosts.size(), 4000u);
  spit(path, start + "{}\n");
  expect_refusal<DataError>(kReader, "last line: {}", {"ledger.jsonl: "},
                            [&] { read_last_line(path); });
}

TEST(Ledger, lines_read_back_as_written) {
  const TemporaryDirectory directory;
  const auto path = directory / "ledger.jsonl";
  EXPECT_TRUE(read_ledger(path).empty());
  spit(path, to_json_line(start_at(1.5, 7)) + to_json_line(steps_at(20, 8, 9, 3, 1, 0.25, 0.5)) +
                 "{\"event\":\"of a later version\",\"time_seconds\":3}\n" +
                 to_json_line(end_at(21, 9)) + "{\"event\":\"start\"");  // a crash
  const auto lines = read_ledger(path);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].step, 7);
  EXPECT_EQ(lines[0].ranks, 2);
  EXPECT_EQ(lines[0].hosts, std::vector<std::string>{"a"});
  EXPECT_EQ(lines[1].last, 9);
  EXPECT_EQ(lines[1].checkpoint_seconds, 0.25);
  EXPECT_EQ(lines[2].exit_code, 75);
  EXPECT_EQ(lines[2].why, "x");
}

TEST(Ledger, impossible_lines_are_errors_that_name_the_line_and_keep_the_file) {
  const TemporaryDirectory directory;
  const auto path = directory / "ledger.jsonl";
  const auto good = to_json_line(start_at(1, 0)), end = to_json_line(end_at(1, 0));
  const auto steps = [](const char* rest) {
    return str(R"({"event":"steps","time_seconds":1,)", rest, "}\n");
  };
  const std::pair<std::string, const char*> files[] = {
      {good + "nonsense\n" + end, "line 2"},
      {good + steps(R"("first":1,"last":2,"step_seconds":-1)"), "line 2: step_seconds is -1"},
      {good + steps(R"("first":5,"last":3)"), "line 2: last is 3"},
      {good + steps(R"("first":0,"last":3)"), "first"},
      {good + steps(R"("first":1,"last":2,"step_seconds":null)"), "line 2"},
      {good + steps(R"("first":1,"last":2,"step_seconds":1,"data_seconds":2,)"
                    R"("checkpoint_seconds":0,"evaluation_seconds":0)"),
       "line 2: data_seconds is 2"},
      {good + R"({"event":"start","time_seconds":1,"step":0,"ranks":1,"hosts":[],)"
              R"("meet_seconds":-2,"load_seconds":0})"
              "\n",
       "line 2: meet_seconds is -2"},
      {end + good, "line 1"}};
  for (const auto& [text, pin] : files) {
    spit(path, text);
    expect_refusal<DataError>(kReader, text, {"ledger.jsonl: ", pin}, [&] { read_ledger(path); });
    EXPECT_THROW(Ledger(path, {.began = Clock::now()}), DataError);
    EXPECT_EQ(slurp(path), text);
  }
}

TEST(Ledger, the_log_line_has_all_parts) {
  const Goodput g{.productive_seconds = 17460,
                  .replayed_seconds = 180,
                  .restart_seconds = 360,
                  .checkpoint_seconds = 120,
                  .data_seconds = 0.2,
                  .evaluation_seconds = 240,
                  .idle_seconds = 360,
                  .restarts = 4};
  const auto text = in_words(g);
  for (const char* pin : {"93.3%", "5h12m", "4h51m", "3m", "(4)", "2m", "0s"})
    expect_contains(text, pin);
  expect_wording(kReader, "in words", text);
  expect_wording(kReader, "nothing in words", in_words(Goodput{}));
}

StepReport report_of(std::int64_t step, double data, double checkpoint, double evaluation) {
  StepReport report;
  report.step = step;
  report.data_wait_seconds = data;
  report.time[Component::checkpoint] = checkpoint;
  report.evaluation_seconds = evaluation;
  return report;
}

void pass(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void expect_same(const Goodput& a, const Goodput& b) {
  for (std::size_t i = 0; i < a.parts().size(); ++i)
    EXPECT_NEAR(a.parts()[i].second, b.parts()[i].second, 1e-5) << a.parts()[i].first;
  for (std::size_t i = 0; i < a.phases.parts().size(); ++i)
    EXPECT_NEAR(a.phases.parts()[i].second, b.phases.parts()[i].second, 1e-5)
        << a.phases.parts()[i].first;
  EXPECT_EQ(a.restarts, b.restarts);
}

// While the run continues, it has the same values as a reader of the file.
TEST(Ledger, the_writer_counts_the_same_goodput_as_a_reader) {
  const TemporaryDirectory directory;
  const auto path = directory / "ledger.jsonl";
  const auto now = [] { return Clock::now(); };
  {
    const auto began = now() - std::chrono::seconds(3);
    Ledger ledger(path, {.began = began, .step = 0, .hosts = {"n1"}});
    const std::chrono::duration<double> start = now() - began;
    pass(0.015);
    ledger.append(report_of(1, 0.005, 0, 0.005));
    pass(0.01);
    ledger.append(report_of(2, std::nan(""), std::nan(""), 0));
    pass(0.01);
    ledger.end(0, "done", 0.005);
    const auto& g = ledger.goodput();
    EXPECT_GE(g.restart_seconds, 3);
    EXPECT_LE(g.restart_seconds, start.count());
    EXPECT_EQ(g.checkpoint_seconds, 0.005);
    EXPECT_EQ(g.evaluation_seconds, 0.005);
    EXPECT_EQ(g.data_seconds, 0.005);
    expect_same(g, goodput_of(read_ledger(path)));
  }
  const auto size = std::filesystem::file_size(path);
  spit(path, slurp(path) + "{\"event\":\"sta");  // a crash
  {
    Ledger ledger(path, {.began = now(), .step = 1, .hosts = {"n1"}});
    EXPECT_EQ(ledger.goodput().restarts, 1);
    EXPECT_GT(ledger.goodput().replayed_seconds, 0.005);
    EXPECT_EQ(ledger.goodput().replayed_seconds, goodput_of(read_ledger(path)).replayed_seconds);
  }
  {
    Ledger ledger(path, {.began = now() - std::chrono::seconds(2),
                         .step = 2,
                         .hosts = {"n1"},
                         .version = "0.1.0",
                         .restart = {.judge = 0.5, .prepare = 0.001},
                         .starting = {.meet = 0.25, .load = 1}});
    EXPECT_EQ(ledger.phases().load, 1);
    EXPECT_GT(ledger.phases().setup, 0.7);
    pass(0.005);
    ledger.end(75, "stopped \xff by a \"signal\"", 0);  // before its first step
    expect_same(ledger.goodput(), goodput_of(read_ledger(path)));
    EXPECT_EQ(ledger.goodput().restarts, 2);
  }
  EXPECT_GT(std::filesystem::file_size(path), size);
  const auto lines = read_ledger(path);
  EXPECT_EQ(lines.size(), 6u);  // start, steps, end; start; start, end
  EXPECT_EQ(lines[1].first, 1);
  EXPECT_EQ(lines[1].last, 2);
  EXPECT_EQ(lines[0].version, "");  // written by an older program
  EXPECT_EQ(lines[4].version, "0.1.0");
  EXPECT_EQ(lines[4].restart, (RestartSeconds{.judge = 0.5, .prepare = 0.001}));
  EXPECT_EQ(lines[4].starting, (StartSeconds{.meet = 0.25, .load = 1}));
  EXPECT_EQ(lines[0].starting, StartSeconds());
  EXPECT_EQ(lines.back().step, 2);
  EXPECT_EQ(lines.back().why, "stopped \xef\xbf\xbd by a \"signal\"");  // U+FFFD
}

TEST(Ledger, reports_of_more_time_than_passed_make_no_negative_time) {
  const TemporaryDirectory directory;
  Ledger ledger(directory / "ledger.jsonl", {.began = Clock::now(), .step = 0});
  ledger.append(report_of(1, 5, 1000, 1000));
  ledger.append(report_of(2, 5, 0, 0));
  ledger.end(0, "done", 100);
  for (const auto& [name, seconds] : ledger.goodput().parts())
    EXPECT_TRUE(seconds >= 0 && seconds < 10) << name << " " << seconds;
  expect_same(ledger.goodput(), goodput_of(read_ledger(directory / "ledger.jsonl")));
}

}  // namespace lockstep::testing::ledger_test
