#include "launch/watch/screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/component.h"
#include "core/units.h"
#include "launch/watch/curve.h"
#include "launch/watch/line.h"

namespace lockstep {
namespace {

std::string percent(double ratio) {
  return std::isfinite(ratio) ? formatted("%.1f%%", 100 * ratio) : "n/a";
}

std::string seconds_text(double seconds) {
  return std::isfinite(seconds) ? human_seconds(seconds) : "n/a";
}

std::string rate_text(double rate) {
  return formatted("%.3g", rate);
}

struct Status {
  std::string text;
  bool is_alarm = false;
};

// The state of the run, from its last line or ledger entry.
Status status_of(const WatchedRun& run) {
  const auto waiting = [&](const char* what) {
    return Status{str("waiting for ", printable(run.path), ": ", what)};
  };
  if (!run.is_there) return waiting("no metrics.jsonl yet");
  if (run.share_read < 1)
    return {str("reading ", formatted("%.0f%%", std::floor(100 * run.share_read)))};
  if (!run.last) return waiting("no completed step yet");
  const double came = (*run.last)[Metric::time_seconds];
  const bool is_starting = run.started_seconds && !(came >= *run.started_seconds);
  const double age = std::max(run.now_seconds - (is_starting ? *run.started_seconds : came), 0.0);
  const auto ago = std::isfinite(age) ? human_eta(age) + " ago" : std::string("at an unknown time");
  if (run.end) {
    const auto since = human_eta(std::max(run.now_seconds - run.end->time_seconds, 0.0));
    const bool well = run.end->exit_code == 0;
    return {str("ended ", since, " ago", well ? "" : str(" with exit code ", run.end->exit_code),
                run.end->why.empty() ? "" : ": " + printable(run.end->why)),
            !well};
  }
  if (!is_starting && run.planned_steps && run.last->step >= *run.planned_steps)
    return {"done " + ago};
  constexpr double kPatience = 30, kStepsOfPatience = 10;
  constexpr double kPatienceOfStart = 600;  // the first step selects kernels and waits for data
  const double step = (*run.last)[Metric::step_seconds];
  const double patience =
      std::fmax(is_starting ? kPatienceOfStart : kPatience, kStepsOfPatience * step);
  if (age > patience)
    return {str("no new line for ", human_eta(age), ": is it still training?"), true};
  return {(is_starting ? "started " : "last line ") + ago};
}

std::string step_text(const WatchedRun& run) {
  const auto step = run.last ? run.last->step : 0;
  if (!run.planned_steps) return str("step ", step);
  return str("step ", step, "/", *run.planned_steps, "  ",
             percent(static_cast<double>(step) / static_cast<double>(*run.planned_steps)));
}

struct Number {
  std::string label, value;
};

// Adds the planned value.
std::string beside(const std::string& value, const std::string& plan) {
  return plan.empty() ? value : str(value, " (plan ", plan, ")");
}

std::vector<Number> numbers_of(const WatchedRun& run) {
  const StepMetrics& last = *run.last;
  const auto of_plan = [&](double value, std::string (*text)(double)) {
    return run.plan && std::isfinite(value) ? trimmed(text(value)) : std::string();
  };
  const PlanFile plan = run.plan.value_or(PlanFile());
  const auto planned = plan.step.without_checkpoints();
  std::vector<Number> numbers{{"loss", loss_text(last[Metric::loss])}};
  if (run.evaluation)
    numbers.push_back({"validation", str(loss_text((*run.evaluation)[Metric::validation_loss]),
                                         " at ", run.evaluation->step)});
  const auto known = [](double value, std::string (*text)(double)) {
    return std::isfinite(value) ? trimmed(text(value)) : std::string("n/a");
  };
  numbers.push_back({"grad norm", known(last[Metric::grad_norm], three_digits)});
  numbers.push_back({"learning rate", known(last[Metric::learning_rate], rate_text)});
  numbers.push_back({"tokens/s", beside(known(last[Metric::tokens_per_second], human_count),
                                        of_plan(planned.tokens_per_second, human_count))});
  numbers.push_back({"MFU", beside(percent(last[Metric::mfu]), of_plan(planned.mfu, percent))});
  numbers.push_back({"step time", beside(seconds_text(last[Metric::step_seconds]),
                                         of_plan(planned.seconds, human_seconds))});
  numbers.push_back(
      {"data wait", percent(last[Metric::data_wait_seconds] / last[Metric::step_seconds])});
  const auto capacity = of_plan(static_cast<double>(plan.capacity_bytes), human_memory);
  numbers.push_back({"memory", str(known(last[Metric::peak_bytes], human_memory),
                                   capacity.empty() ? "" : " of " + capacity)});
  numbers.push_back({"tokens", known(last[Metric::tokens_seen], human_count)});
  return numbers;
}

// The name of plans and logs, with "communication" shortened to fit.
std::string short_name(std::string name) {
  for (std::size_t i = 0; i < kComponents; ++i)
    if (const auto component = static_cast<Component>(i); name == lockstep::name(component))
      name = in_words(component);
  constexpr std::string_view kLong = "communication, ";
  if (name.starts_with(kLong)) name.replace(0, kLong.size(), "comm ");
  return printable(name);
}

std::string part_time(double seconds) {
  constexpr double kMost = 99999;  // longer times do not fit
  return seconds == 0      ? std::string("0")
         : seconds > kMost ? formatted("%.0e s", seconds)
                           : seconds_text(seconds);
}

// The table of parts: name, plan, measured, difference; the first line is the header.
std::vector<std::array<std::string, 4>> part_rows(const WatchedRun& run) {
  std::vector<std::array<std::string, 4>> rows;
  if (run.step.parts.empty()) return rows;
  const bool plan = run.plan.has_value();
  rows.push_back({"part of a step", plan ? "plan" : "", "measured", plan ? "differs" : "share"});
  const auto add = [&](const std::string& name, const StepPart& part, const std::string& share) {
    std::string last = share;
    if (plan)
      last = std::isfinite(part.measured) && part.planned > 0
                 ? formatted("%+.0f%%", 100 * (part.measured / part.planned - 1))
                 : "";
    rows.push_back({cut(name, 14), plan ? part_time(part.planned) : "", part_time(part.measured),
                    last.size() > 7 ? "" : last});
  };
  for (const StepPart& part : run.step.parts)
    add(short_name(part.name), part, percent(run.step.share(part)));
  add("whole step", run.step.whole, percent(1));
  if (run.step.checkpoints) add("+ checkpoints", *run.step.checkpoints, "");
  return rows;
}

std::string head_line(const WatchedRun& run, int columns, Style style) {
  const auto status = status_of(run);
  Line line(columns, style);
  if (!run.last) return line.add(status.text, status.is_alarm ? kAlarm : "").text();
  const auto step = "  " + step_text(run), short_step = str("  ", run.last->step);
  const int room = columns - width_of(short_step);  // for the name, which may use a tiny line alone
  line.add(cut(printable(run.name), room > 0 ? room : columns), kStrong);
  if (room > 0) line.add(line.left() >= width_of(step) ? step : short_step);
  if (const double eta = (*run.last)[Metric::eta_seconds]; std::isfinite(eta) && !run.end)
    line.add("  eta " + human_eta(eta));
  if (const int left = line.left() - width_of(status.text); left >= 2)
    line.gap(left).add(status.text, status.is_alarm ? kAlarm : kFaint);
  return line.text();
}

// The status in a line of its own, if it does not fit into the head.
std::string status_line(const WatchedRun& run, int columns, Style style) {
  const auto status = status_of(run);
  return Line(columns, style).add(status.text, status.is_alarm ? kAlarm : kFaint).text();
}

std::string progress_line(const WatchedRun& run, int columns, Style style) {
  const double share = std::clamp(
      static_cast<double>(run.last->step) / static_cast<double>(*run.planned_steps), 0.0, 1.0);
  const int done = static_cast<int>(share * columns);
  const auto repeated = [](int count, const char* what) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += what;
    return text;
  };
  const char* heavy_line = "\xe2\x94\x81";  // U+2501
  const bool is_told_by_colour = style.utf8 && style.colour;
  return Line(columns, style)
      .add(repeated(done, style.utf8 ? heavy_line : "*"), kCurve)
      .add(repeated(columns - done, is_told_by_colour ? heavy_line : "-"), kFaint)
      .text();
}

constexpr int kCell = 39, kLabel = 14;  // widths of a number; a row of parts is as wide

void add_number(Line& line, const Number& number) {
  line.add(padded(number.label, kLabel), kFaint).add(number.value);
}

void add_part(Line& line, const std::array<std::string, 4>& row, const char* style) {
  line.add(padded(row[0], 14) + right(row[1], 8) + right(row[2], 9) + right(row[3], 8), style);
}

// Numbers in as many columns as fit.
std::vector<std::string> number_lines(const WatchedRun& run, int columns, Style style) {
  const auto numbers = numbers_of(run);
  const int across = std::max(1, (columns + 2) / (kCell + 2));
  const auto down =
      (numbers.size() + static_cast<std::size_t>(across) - 1) / static_cast<std::size_t>(across);
  std::vector<std::string> lines;
  for (std::size_t row = 0; row < down; ++row) {
    Line line(columns, style);
    for (std::size_t i = row; i < numbers.size(); i += down) {
      add_number(line, numbers[i]);
      const int next = static_cast<int>(i / down + 1) * (kCell + 2);
      line.gap(next - (columns - line.left()));
    }
    lines.push_back(line.text());
  }
  return lines;
}

std::vector<std::string> part_lines(const WatchedRun& run, int columns, Style style) {
  std::vector<std::string> lines;
  for (const auto& row : part_rows(run)) {
    Line line(columns, style);
    add_part(line, row, lines.empty() ? kFaint : "");
    lines.push_back(line.text());
  }
  return lines;
}

// Numbers on the left, parts on the right.
std::vector<std::string> both_lines(const WatchedRun& run, int columns, Style style) {
  const auto numbers = numbers_of(run);
  const auto parts = part_rows(run);
  std::vector<std::string> lines;
  for (std::size_t row = 0; row < std::max(numbers.size(), parts.size()); ++row) {
    Line line(columns, style);
    if (row < numbers.size())
      add_number(line, numbers[row]);
    else
      line.add(" ");
    line.gap(kCell + 2 - (columns - line.left()));
    if (row < parts.size()) add_part(line, parts[row], row == 0 ? kFaint : "");
    lines.push_back(line.text());
  }
  return lines;
}

void append(std::vector<std::string>& lines, const std::vector<std::string>& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

}  // namespace

std::vector<std::string> screen_of(const WatchedRun& run, int columns, int rows, Style style) {
  std::vector<std::string> lines{head_line(run, columns, style)};
  const auto note = [&] { return Line(columns, style).add(printable(run.note), kAlarm).text(); };
  if (!run.last && !run.note.empty()) lines.push_back(note());
  if (run.last) {
    const auto said = status_of(run).text;
    const auto status = style.utf8 ? said : ascii(said);
    if (lines.front().find(status) == std::string::npos)
      lines.push_back(status_line(run, columns, style));
    const auto place = [&] { return rows - static_cast<int>(lines.size()); };
    constexpr int kLeastCurve = 5;  // rows, without the line of steps
    const bool wide = columns >= 2 * kCell + 2 && !run.step.parts.empty();
    auto below = wide ? both_lines(run, columns, style) : number_lines(run, columns, style);
    if (wide && place() < std::ssize(below) + kLeastCurve + 2)
      below = number_lines(run, columns, style);
    const auto parts = part_lines(run, columns, style);
    if (!wide && !parts.empty() &&
        place() >= std::ssize(below) + std::ssize(parts) + kLeastCurve + 4) {
      below.emplace_back();
      append(below, parts);
    }
    if (!run.note.empty()) below.push_back(note());
    const int curve = place() - static_cast<int>(below.size()) - 3;
    if (curve >= kLeastCurve && columns >= 24) {
      if (run.planned_steps) lines.push_back(progress_line(run, columns, style));
      append(lines, Curve(run.steps, columns, run.planned_steps ? curve - 1 : curve).lines(style));
      lines.emplace_back();
    }
    append(lines, below);
  }
  if (std::ssize(lines) > rows) lines.resize(static_cast<std::size_t>(std::max(rows, 0)));
  return lines;
}

std::vector<std::string> lines_of(const WatchedRun& run) {
  std::vector<std::string> lines{
      str(printable(run.name), ": ", step_text(run), ", ", status_of(run).text)};
  if (const double eta = (*run.last)[Metric::eta_seconds]; std::isfinite(eta) && !run.end)
    lines.push_back(padded("eta", 16) + human_eta(eta));
  for (const auto& [label, value] : numbers_of(run))
    lines.push_back(padded(label, 16) + value);
  append(lines, part_lines(run, 80, Style()));
  if (!run.note.empty()) lines.push_back(printable(run.note));
  return lines;
}

}  // namespace lockstep
