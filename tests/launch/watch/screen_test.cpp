#include "launch/watch/screen.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "core/utf8.h"
#include "launch/watch/braille.h"
#include "tests/wording.h"

namespace lockstep::testing::screen_test {

WatchedRun watched(int steps, bool with_plan) {
  WatchedRun run;
  run.name = "a run";
  run.path = "runs/a run";
  run.is_there = true;
  run.now_seconds = 1.7e9 + steps + 3;
  for (int step = 1; step <= steps; ++step) {
    StepMetrics line;
    line.step = step;
    line[Metric::loss] = step == 5 ? 1e300 : 3 + std::exp(-step / 20.0);
    line[Metric::grad_norm] = 0.5;
    line[Metric::step_seconds] = 0.4;
    line[Metric::tokens_per_second] = 1e5;
    line[Metric::time_seconds] = 1.7e9 + step;
    line[Metric::eta_seconds] = 7260;
    if (step % 20 == 0) {
      line[Metric::validation_loss] = 3.5;
      run.evaluation = line;
    }
    run.steps.add(line);
    run.last = line;
  }
  if (with_plan) {
    run.planned_steps = 2 * steps;
    run.plan.emplace();
    run.plan->step.seconds = 0.35;
    run.plan->step.mfu = 0.5;
    run.step.parts = {{.name = "products", .planned = 0.2, .measured = 0.3},
                      {.name = "communication_replicate", .planned = 1e-9, .measured = 1e9},
                      {.name = "other", .measured = 0.1}};
    run.step.whole = {.name = "whole step", .planned = 0.35, .measured = 0.4};
    run.step.checkpoints = {.name = "checkpoint", .measured = 2};
  }
  return run;
}

std::string without_escapes(const std::string& text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\x1b')
      at = text.find('m', at);
    else
      plain += text[at];
  }
  return plain;
}

// Columns of `text` on a terminal. In these tests, characters from U+3000 to U+DFFF take two
// columns, and combining marks take none.
std::int64_t columns_of(const std::string& text) {
  EXPECT_EQ(valid_utf8(text), text.size());
  std::int64_t columns = 0;
  for (std::size_t at = 0; at < text.size(); at += utf8_at(text.substr(at)).bytes) {
    const auto is_wide = text.compare(at, 1, "\xe3") >= 0 && text.compare(at, 1, "\xee") < 0;
    const auto is_mark = text.compare(at, 1, "\xcc") == 0;
    columns += is_wide ? 2 : is_mark ? 0 : 1;
  }
  return columns;
}

constexpr Style kPlain{.colour = false}, kColour{.colour = true};
constexpr Style kAscii{.colour = true, .utf8 = false};

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const auto& line : lines)
    all += without_escapes(line) + "\n";
  return all;
}

// The screen of `columns` x `rows` in colour, without its escapes.
std::string shown(const WatchedRun& run, int columns = 120, int rows = 24) {
  return joined(screen_of(run, columns, rows, kColour));
}
// The first line of the screen is the message `name`, which holds each of `pins`.
void expect_head(const WatchedRun& run, const std::string& name,
                 std::initializer_list<std::string> pins) {
  const auto head = without_escapes(screen_of(run, 120, 24, kPlain).front());
  for (const auto& pin : pins)
    expect_contains(head, pin);
  expect_wording("launch/screen", name, head);
}

// Number of rings in the curve: in lines of digits, blanks, dots, stars and rings only.
std::int64_t rings_in(const std::vector<std::string>& lines) {
  std::int64_t rings = 0;
  for (const auto& line : lines)
    if (line.find_first_not_of(" 0123456789.*o") == line.npos)
      rings += std::ranges::count(line, 'o');
  return rings;
}

TEST(Screen, lines_and_columns_never_exceed_the_size_of_the_terminal) {
  const std::string wide = "\xe6\xa8\xa1\xe5\x9e\x8b e\xcc\x81";  // two wide ones and a mark
  for (const bool plan : {false, true})
    for (const int steps : {0, 1, 2, 200}) {
      auto run = watched(steps, plan);
      run.note = "something is wrong with a file whose name is long";
      run.name += wide;
      for (int columns = 1; columns <= 130; columns += columns < 30 ? 1 : 7)
        for (int rows = 1; rows <= 50; rows += rows < 20 ? 1 : 6)
          for (const Style style : {kPlain, kColour, kAscii}) {
            const auto lines = screen_of(run, columns, rows, style);
            ASSERT_LE(std::ssize(lines), rows);
            for (const auto& line : lines)
              ASSERT_LE(columns_of(without_escapes(line)), columns)
                  << columns << " x " << rows << ": " << line;
          }
    }
}

TEST(Screen, a_terminal_of_80_by_24_has_the_curve_numbers_and_parts) {
  const auto run = watched(200, true);
  const auto text = shown(run, 80);
  for (const char* what :
       {"200/400", "50.0%", "2h01m", "3.0000", "3.5000 at 200", "300 ms", "+50%"})
    expect_contains(text, what);
  expect_wording("launch/screen", "80 x 24, below the curve", text.substr(text.rfind("\n\n")));
}

TEST(Screen, the_status_reports_a_stalled_an_ended_and_a_missing_run) {
  auto run = watched(50, true);
  run.now_seconds += 3600;
  expect_head(run, "nothing came", {"1h00m"});
  run.end = LedgerLine{.kind = LedgerLine::Kind::end,
                       .time_seconds = run.now_seconds - 60,
                       .exit_code = 75,
                       .why = "stopped"};
  expect_head(run, "it ended", {"1m", "75", "stopped"});
  run.end.reset();
  run.planned_steps = 50;
  expect_head(run, "all steps are done", {"1h00m"});
  run.share_read = 0.239;
  expect_head(run, "a long file is read", {"23%"});
  auto none = watched(0, false);
  none.note = "config.toml: a\x1bproblem";
  expect_head(none, "no step", {none.path});
  expect_contains(shown(none), "\nconfig.toml: a?problem\n");
  EXPECT_EQ(screen_of(none, 80, 1, kColour).size(), 1u);
  none.is_there = false;
  expect_head(none, "no metrics.jsonl", {none.path, "metrics.jsonl"});
}

TEST(Screen, a_start_is_an_alarm_only_if_its_first_step_takes_long) {
  auto run = watched(50, true);
  run.now_seconds += 3600;
  run.started_seconds = run.now_seconds - 20;
  expect_head(run, "it started", {"20s"});
  const auto head = screen_of(run, 120, 24, kColour).front();
  EXPECT_EQ(head.find(str("\x1b[", kAlarm, "m")), head.npos);
  run.planned_steps = 50;  // of the earlier start
  expect_head(run, "it started, all steps were done", {"20s"});
  run.started_seconds = run.now_seconds - 660;
  expect_head(run, "nothing came since the start", {"11m"});
  run.started_seconds = (*run.last)[Metric::time_seconds] - 1;  // a step followed
  run.planned_steps = 100;
  expect_head(run, "nothing came", {"1h00m"});
}

TEST(Screen, a_run_that_diverged_early_has_a_curve_of_its_finite_losses) {
  auto run = watched(0, false);
  for (int step = 1; step <= 2000; ++step) {
    StepMetrics line;
    line.step = step;
    line[Metric::loss] = step <= 20 ? 7 - step / 10.0 : StepMetrics::kUnknown;
    run.steps.add(line);
    run.last = line;
  }
  const auto text = shown(run, 80);
  expect_contains(text, "6.9000");
  expect_contains(text, "5.0000");
}

// The loss falls from 6.5 to 3 in 60 steps, then to 2. It is 7 in the last `rising` steps.
WatchedRun fallen(int steps, int rising) {
  auto run = watched(0, false);
  for (int step = 1; step <= steps; ++step) {
    StepMetrics line;
    line.step = step;
    line[Metric::loss] = step > steps - rising ? 7
                         : step <= 60          ? 6.5 - 3.5 * step / 60
                                               : 3 - (step - 60.0) / (steps - 60);
    run.steps.add(line);
    run.last = line;
  }
  return run;
}

TEST(Screen, the_curve_is_scaled_without_the_first_fall_and_a_note_states_it) {
  const auto lines = screen_of(fallen(400, 0), 80, 24, kPlain);
  const auto text = joined(lines);
  const auto row = std::ranges::find_if(lines, [](const auto& line) {
    return line.find_first_not_of(" 0123456789.") != line.npos && line.starts_with("3.");
  });
  ASSERT_NE(row, lines.end()) << text;
  EXPECT_LT(std::stod(*row), 4.2) << text;
  const auto& above = *std::ranges::find_if(
      lines, [](const auto& line) { return line.find("6.4417") != line.npos; });
  expect_wording("launch/screen", "a first fall", above);
  EXPECT_EQ(columns_of(above), 80);
  // The curve is complete if the loss rises again or if the run has no steps after the fall.
  const auto risen = joined(screen_of(fallen(400, 40), 80, 24, kPlain));
  expect_contains(risen, "\n7.0000 ");
  EXPECT_EQ(risen.find("6.4417"), risen.npos) << risen;
  EXPECT_EQ(joined(screen_of(fallen(60, 0), 80, 24, kPlain)).find(" up to "), std::string::npos);
}

TEST(Screen, parts_of_a_step_are_named_as_in_plans) {
  auto run = watched(50, true);
  run.step.parts = {{.name = "memory_bound", .measured = 0.1},
                    {.name = "communication_ranks", .measured = 0.1},
                    {.name = "of_another", .measured = 0.1}};
  const auto text = joined(lines_of(run));
  expect_contains(text, "\nof_another ");
  expect_wording("launch/screen", "parts", text.substr(text.find("\npart")));
}

TEST(Screen, control_characters_in_names_are_replaced) {
  auto run = watched(30, true);
  run.name =
      "a\x1b[2Jb\nc\xff\xc2\x9b"
      "31md";
  run.step.parts[0].name = "pr\x1b]0;x\x07";
  run.end = LedgerLine{.kind = LedgerLine::Kind::end, .exit_code = 1, .why = "x\x1b[31my"};
  for (const auto& lines : {screen_of(run, 120, 40, kPlain), lines_of(run)})
    for (const auto& line : lines)
      for (std::size_t i = 0; i < line.size(); ++i) {
        EXPECT_GE(static_cast<unsigned char>(line[i]), 0x20) << line;
        if (static_cast<unsigned char>(line[i]) == 0xc2) {
          EXPECT_GE(static_cast<unsigned char>(line[i + 1]), 0xa0) << line;
        }
      }
  expect_contains(joined(screen_of(run, 120, 40, kPlain)), "a?[2Jb?c\xef\xbf\xbd?31md");
}

TEST(Screen, the_status_fills_the_width_for_names_of_any_width) {
  auto run = watched(200, true);
  for (const char* name :
       {"plain", "\xe6\xa8\xa1\xe5\x9e\x8b\xe8\xae\xad\xe7\xbb\x83", "e\xcc\x81"}) {
    run.name = name;
    const auto head = without_escapes(screen_of(run, 100, 24, kColour).front());
    EXPECT_EQ(columns_of(head), 100) << head;
    EXPECT_TRUE(head.ends_with(" 3s ago")) << head;
  }
}

TEST(Screen, a_long_name_does_not_hide_the_step) {
  auto run = watched(200, true);
  run.name = std::string(200, 'x');
  for (const int columns : {6, 10, 40, 80}) {
    const auto head = without_escapes(screen_of(run, columns, 24, kColour).front());
    EXPECT_TRUE(head.ends_with("  200")) << head;
  }
}

TEST(Screen, without_utf8_the_screen_is_complete_in_ascii) {
  auto run = watched(200, true);
  run.name = "\xe6\xa8\xa1 caf\xc3\xa9";
  run.end = LedgerLine{.kind = LedgerLine::Kind::end, .exit_code = 1, .why = "caf\xc3\xa9"};
  const auto text = joined(screen_of(run, 120, 40, kAscii));
  for (const char c : text)
    ASSERT_FALSE((c & 0x80) != 0) << text;
  expect_contains(text, "? caf?  ");
  expect_contains(text, std::string(60, '*') + std::string(60, '-') + "\n");  // the progress bar
  EXPECT_EQ(rings_in(screen_of(run, 120, 40, {.colour = false, .utf8 = false})), 10);
  expect_contains(text, ": caf?");  // the reason of the end, once
  EXPECT_EQ(text.find(": caf?"), text.rfind(": caf?"));
  const auto stars = std::count(text.begin(), text.end(), '*') - 60;
  EXPECT_GT(stars, 100);  // one or more in each column of the curve
}

TEST(Screen, checkpoints_are_listed_below_the_step_and_shares_are_of_the_step) {
  auto run = watched(200, true);
  run.plan.reset();
  const auto text = shown(run, 80, 40);
  for (const char* what : {"300 ms   75.0%", "100 ms   25.0%", "400 ms  100.0%", "2.00 s"})
    expect_contains(text, what);
  EXPECT_LT(text.find("400 ms  100.0%"), text.find("2.00 s"));
  expect_wording("launch/screen", "parts without a plan", text.substr(text.rfind("\n\n")));
}

TEST(Screen, plain_lines_have_the_same_values_without_a_curve) {
  const auto text = joined(lines_of(watched(200, true)));  // it has no learning rate
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
  expect_wording("launch/screen", "plain lines", text);
}

TEST(Braille, a_dot_gives_the_unicode_character_of_its_place) {
  constexpr int kColumns = 5, kRows = 3;
  for (int x = 0; x < 2 * kColumns; ++x)
    for (int y = 0; y < 4 * kRows; ++y) {
      Braille drawing(kColumns, kRows);
      drawing.dot(x, y);
      // Unicode numbers the dots of a character from 1 to 8; here by row and column.
      constexpr int kNumber[4][2] = {{1, 4}, {2, 5}, {3, 6}, {7, 8}};
      const int code = 0x2800 + (1 << (kNumber[y % 4][x % 2] - 1));
      for (int column = 0; column < kColumns; ++column)
        for (int row = 0; row < kRows; ++row) {
          const bool here = column == x / 2 && row == y / 4;
          EXPECT_EQ(drawing.is_empty(column, row), !here);
          const auto text = drawing.character(column, row);
          if (!here) {
            EXPECT_EQ(text, " ");
            continue;
          }
          ASSERT_EQ(text.size(), 3u);
          const int decoded = (text[0] & 0x0f) << 12 | (text[1] & 0x3f) << 6 | (text[2] & 0x3f);
          EXPECT_EQ(decoded, code);
        }
    }
}

TEST(Braille, a_line_has_no_gap_and_is_clipped_to_the_drawing) {
  Braille drawing(10, 4);
  drawing.line(0, 0, 19, 15);
  for (int x = 0; x < 20; ++x)
    EXPECT_FALSE(drawing.is_empty(x / 2, 15 * x / 19 / 4)) << x;
  drawing.line(-2'000'000'000, -5, 2'000'000'000, 3);
  drawing.dot(-1, 0);
  drawing.dot(0, 99);
  EXPECT_EQ(Braille(0, -3).height(), 0);
}

}  // namespace lockstep::testing::screen_test
