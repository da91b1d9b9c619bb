#include "launch/watch/screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/units.h"
#include "data/unicode.h"
#include "launch/watch/braille.h"

namespace lockstep {
namespace {

constexpr const char* kCurve = "36";
constexpr const char* kValidation = "33";
constexpr const char* kAlarm = "31";
constexpr const char* kFaint = "2";
constexpr const char* kStrong = "1";

// Without what a terminal obeys: names come from files.
std::string printable(std::string_view text) {
  std::string plain = replaced_utf8(text);
  for (char& c : plain)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  for (std::size_t at = 0; (at = plain.find('\xc2', at)) != plain.npos; ++at)  // U+0080 to U+009F
    if (at + 1 < plain.size() && static_cast<unsigned char>(plain[at + 1]) < 0xa0)
      plain.replace(at, 2, "?");
  return plain;
}

int width_of(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

// The first so many characters.
std::string cut(std::string_view text, int columns) {
  std::size_t at = 0;
  for (int i = 0; i < columns && at < text.size(); ++i)
    for (++at; at < text.size() && is_continuation(text[at]);)
      ++at;
  return std::string(text.substr(0, at));
}

std::string padded(std::string text, int columns) {
  text.append(static_cast<std::size_t>(std::max(columns - width_of(text), 0)), ' ');
  return text;
}

std::string right(const std::string& text, int columns) {
  return std::string(static_cast<std::size_t>(std::max(columns - width_of(text), 0)), ' ') + text;
}

// Pieces of a line, of which those that find no place any more are left out.
class Line {
 public:
  Line(int columns, bool colour) : columns_(columns), colour_(colour) {}

  // A piece that is cut where it is the first, and left out where it does not fit.
  Line& add(const std::string& text, const char* style = "") {
    const int width = width_of(text);
    if (used_ == 0) {
      put(cut(text, columns_), style);
    } else if (used_ + width <= columns_) {
      put(text, style);
    }
    return *this;
  }
  Line& gap(int columns) {
    const int width = std::min(columns, columns_ - used_);
    if (width > 0) put(std::string(static_cast<std::size_t>(width), ' '), "");
    return *this;
  }
  int left() const { return columns_ - used_; }
  // Ends in the style of its last piece: a terminal is told to forget it behind each line.
  const std::string& text() const { return text_; }

 private:
  void put(const std::string& text, const char* style) {
    used_ += width_of(text);
    if (colour_ && style_ != style) {
      text_ += style_.empty() ? "" : "\x1b[0m";
      text_ += *style == '\0' ? "" : str("\x1b[", style, "m");
      style_ = style;
    }
    text_ += text;
  }

  int columns_, used_ = 0;
  bool colour_;
  std::string text_, style_;
};

std::string percent(double ratio) {
  return std::isfinite(ratio) ? formatted("%.1f%%", 100 * ratio) : "n/a";
}

std::string loss_text(double loss) {
  if (!std::isfinite(loss)) return "n/a";
  return std::abs(loss) < 1e4 ? formatted("%.4f", loss) : formatted("%.3e", loss);
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

// Where the run stands, by what came last.
Status status_of(const WatchedRun& run) {
  const auto waiting = [&](const char* what) {
    return Status{str("waiting for ", printable(run.path), ": ", what)};
  };
  if (!run.is_there) return waiting("no metrics.jsonl is there yet");
  if (!run.last) return waiting("no step is done yet");
  const double age = std::max(run.now_seconds - (*run.last)[Metric::time_seconds], 0.0);
  const auto ago = std::isfinite(age) ? human_eta(age) + " ago" : std::string("at an unknown time");
  if (run.end) {
    const auto since = human_eta(std::max(run.now_seconds - run.end->time_seconds, 0.0));
    const bool well = run.end->exit_code == 0;
    return {str("ended ", since, " ago", well ? "" : str(" with exit code ", run.end->exit_code),
                run.end->why.empty() ? "" : ": " + printable(run.end->why)),
            !well};
  }
  if (run.planned_steps && run.last->step >= *run.planned_steps) return {"done " + ago};
  constexpr double kPatience = 30, kStepsOfPatience = 10;
  const double step = (*run.last)[Metric::step_seconds];
  const double patience = std::fmax(kPatience, kStepsOfPatience * step);
  if (age > patience)
    return {str("nothing came for ", human_eta(age), ": does it still train?"), true};
  return {"last line " + ago};
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

// Beside what the plan expected.
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

std::string short_name(std::string name) {
  constexpr std::string_view kLong = "communication_";
  if (name.starts_with(kLong)) name.replace(0, kLong.size(), "comm ");
  std::replace(name.begin(), name.end(), '_', ' ');
  return printable(name);
}

// The table of parts: name, plan, measured, difference; the first line is its head.
std::vector<std::array<std::string, 4>> part_rows(const WatchedRun& run) {
  std::vector<std::array<std::string, 4>> rows;
  if (run.parts.empty()) return rows;
  const bool plan = run.plan.has_value();
  rows.push_back({"part of a step", plan ? "plan" : "", "measured", plan ? "differs" : "share"});
  double whole = 0;
  for (const StepPart& part : run.parts)
    if (std::isfinite(part.measured)) whole += part.measured;
  for (const StepPart& part : run.parts) {
    std::string last;
    if (!plan)
      last = percent(part.measured / whole);
    else if (std::isfinite(part.measured) && part.planned > 0)
      last = formatted("%+.0f%%", 100 * (part.measured / part.planned - 1));
    const auto time = [](double seconds) {
      constexpr double kMost = 99999;  // what has a place
      return seconds == 0      ? std::string("0")
             : seconds > kMost ? formatted("%.0e s", seconds)
                               : seconds_text(seconds);
    };
    rows.push_back({cut(short_name(part.name), 14), plan ? time(part.planned) : "",
                    time(part.measured), last.size() > 7 ? "" : last});
  }
  return rows;
}

struct Range {
  double low = 0, high = 1;
};

// Of the means, without the first steps where there are many: a loss falls steeply there.
Range range_of(const std::vector<Bucket>& buckets) {
  Range range{.low = std::numeric_limits<double>::infinity(),
              .high = -std::numeric_limits<double>::infinity()};
  const auto begin = buckets.size() > 100 ? buckets.size() / 50 : 0;
  std::vector<double> means;
  for (std::size_t i = begin; i < buckets.size(); ++i)
    if (const double mean = buckets[i][Metric::loss].mean(); std::isfinite(mean))
      means.push_back(mean);
  if (means.empty()) return {};
  std::sort(means.begin(), means.end());
  const auto cut = means.size() / 200;  // what lies far outside the rest would hide it
  range = {.low = means[cut], .high = means[means.size() - 1 - cut]};
  if (range.high <= range.low) {
    const double around = std::max(std::abs(range.low) / 20, 1e-6);
    range = {.low = range.low - around, .high = range.high + around};
  }
  return range;
}

// The loss of all steps, from the first to the last, and its validation.
class Curve {
 public:
  Curve(const WatchedRun& run, int columns, int rows)
      : buckets_(run.steps.all()),
        range_(range_of(buckets_)),
        labels_(std::max(width_of(loss_text(range_.low)), width_of(loss_text(range_.high))) + 1),
        columns_(columns - labels_),
        rows_(rows),
        few_(evaluations(buckets_) <= columns / 8),
        loss_(columns_, rows),
        validation_(columns_, rows) {
    if (buckets_.empty()) return;
    draw(loss_, Metric::loss, true);
    draw(validation_, Metric::validation_loss, false);
    if (few_) return;
    draw(validation_, Metric::validation_loss, true);
    loss_.add(validation_);
  }

  std::vector<std::string> lines(bool colour) const {
    std::vector<std::string> all;
    for (int row = 0; row < rows_; ++row) {
      Line line(labels_ + columns_, colour);
      const auto label = row == 0           ? loss_text(range_.high)
                         : row == rows_ - 1 ? loss_text(range_.low)
                                            : std::string();
      line.add(right(label, labels_ - 1) + " ", kFaint);
      for (int column = 0; column < columns_; ++column)
        if (validation_.is_empty(column, row))
          line.add(loss_.character(column, row), kCurve);
        else
          line.add(few_ ? "o" : loss_.character(column, row), kValidation);
      all.push_back(line.text());
    }
    Line steps(labels_ + columns_, colour);
    const auto first = std::to_string(buckets_.front().first_step);
    const auto last = std::to_string(buckets_.back().last_step);
    steps.gap(labels_).add(first, kFaint);
    steps.gap(columns_ - width_of(first) - width_of(last)).add(last, kFaint);
    all.push_back(steps.text());
    return all;
  }

 private:
  static int evaluations(const std::vector<Bucket>& buckets) {
    return static_cast<int>(std::ranges::count_if(
        buckets, [](const Bucket& b) { return b[Metric::validation_loss].count > 0; }));
  }

  int x_of(const Bucket& bucket) const {
    const auto first = buckets_.front().first_step, last = buckets_.back().last_step;
    const auto middle = bucket.first_step + (bucket.last_step - bucket.first_step) / 2;
    const double share = static_cast<double>(middle - first) /
                         static_cast<double>(std::max(last - first, std::int64_t{1}));
    return static_cast<int>(std::lround(share * (loss_.width() - 1)));
  }
  int y_of(double value) const {
    const double span = range_.high - range_.low;
    const double share = std::isfinite(span) ? (range_.high - value) / span : 0;
    return static_cast<int>(std::lround(std::clamp(share, -1.0, 2.0) * (loss_.height() - 1)));
  }

  void draw(Braille& to, Metric metric, bool joined) const {
    bool has = false;
    int x = 0, y = 0;
    for (const Bucket& bucket : buckets_) {
      const double value = bucket[metric].mean();
      if (!std::isfinite(value)) {
        has = has && !joined;
        continue;
      }
      const int next_x = x_of(bucket), next_y = y_of(value);
      if (joined && has)
        to.line(x, y, next_x, next_y);
      else
        to.dot(next_x, next_y);
      x = next_x, y = next_y, has = true;
    }
  }

  const std::vector<Bucket>& buckets_;
  Range range_;
  int labels_, columns_, rows_;
  bool few_;  // evaluations: each has a character
  Braille loss_, validation_;
};

std::string head_line(const WatchedRun& run, int columns, bool colour) {
  const auto status = status_of(run);
  Line line(columns, colour);
  if (!run.last) return line.add(status.text, status.is_alarm ? kAlarm : "").text();
  line.add(printable(run.name), kStrong);
  const auto step = "  " + step_text(run);
  line.add(line.left() >= width_of(step) ? step : str("  ", run.last->step));
  if (const double eta = (*run.last)[Metric::eta_seconds]; std::isfinite(eta) && !run.end)
    line.add("  eta " + human_eta(eta));
  if (const int left = line.left() - width_of(status.text); left >= 2)
    line.gap(left).add(status.text, status.is_alarm ? kAlarm : kFaint);
  return line.text();
}

// Where the head has no place for it.
std::string status_line(const WatchedRun& run, int columns, bool colour) {
  const auto status = status_of(run);
  return Line(columns, colour).add(status.text, status.is_alarm ? kAlarm : kFaint).text();
}

std::string progress_line(const WatchedRun& run, int columns, bool colour) {
  const double share = std::clamp(
      static_cast<double>(run.last->step) / static_cast<double>(*run.planned_steps), 0.0, 1.0);
  const int done = static_cast<int>(share * columns);
  std::string full, rest;
  for (int i = 0; i < columns; ++i)
    (i < done ? full : rest) += "\xe2\x94\x81";  // U+2501, a heavy line
  return Line(columns, colour).add(full, kCurve).text() +
         (colour ? "\x1b[2m" + rest + "\x1b[0m" : std::string(rest.size() / 3, '-'));
}

constexpr int kCell = 39, kLabel = 14;  // of a number; a row of parts is as wide

void add_number(Line& line, const Number& number) {
  line.add(padded(number.label, kLabel), kFaint).add(number.value);
}

void add_part(Line& line, const std::array<std::string, 4>& row, const char* style) {
  line.add(padded(row[0], 14) + right(row[1], 8) + right(row[2], 9) + right(row[3], 8), style);
}

// Beside each other, as many as have a place.
std::vector<std::string> number_lines(const WatchedRun& run, int columns, bool colour) {
  const auto numbers = numbers_of(run);
  const int across = std::max(1, (columns + 2) / (kCell + 2));
  const auto down =
      (numbers.size() + static_cast<std::size_t>(across) - 1) / static_cast<std::size_t>(across);
  std::vector<std::string> lines;
  for (std::size_t row = 0; row < down; ++row) {
    Line line(columns, colour);
    for (std::size_t i = row; i < numbers.size(); i += down) {
      add_number(line, numbers[i]);
      const int next = static_cast<int>(i / down + 1) * (kCell + 2);
      line.gap(next - (columns - line.left()));
    }
    lines.push_back(line.text());
  }
  return lines;
}

std::vector<std::string> part_lines(const WatchedRun& run, int columns, bool colour) {
  std::vector<std::string> lines;
  for (const auto& row : part_rows(run)) {
    Line line(columns, colour);
    add_part(line, row, lines.empty() ? kFaint : "");
    lines.push_back(line.text());
  }
  return lines;
}

// Numbers and, right of them, parts.
std::vector<std::string> both_lines(const WatchedRun& run, int columns, bool colour) {
  const auto numbers = numbers_of(run);
  const auto parts = part_rows(run);
  std::vector<std::string> lines;
  for (std::size_t row = 0; row < std::max(numbers.size(), parts.size()); ++row) {
    Line line(columns, colour);
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

std::vector<std::string> screen_of(const WatchedRun& run, int columns, int rows, bool colour) {
  std::vector<std::string> lines{head_line(run, columns, colour)};
  if (run.last) {
    const auto status = status_of(run).text;
    if (lines.front().find(status) == std::string::npos)
      lines.push_back(status_line(run, columns, colour));
    const auto place = [&] { return rows - static_cast<int>(lines.size()); };
    constexpr int kLeastCurve = 5;  // and the steps below it
    const bool wide = columns >= 2 * kCell + 2 && !run.parts.empty();
    auto below = wide ? both_lines(run, columns, colour) : number_lines(run, columns, colour);
    if (wide && place() < std::ssize(below) + kLeastCurve + 2)
      below = number_lines(run, columns, colour);
    const auto parts = part_lines(run, columns, colour);
    if (!wide && !parts.empty() &&
        place() >= std::ssize(below) + std::ssize(parts) + kLeastCurve + 4) {
      below.emplace_back();
      append(below, parts);
    }
    if (!run.note.empty())
      below.push_back(Line(columns, colour).add(printable(run.note), kAlarm).text());
    const int curve = place() - static_cast<int>(below.size()) - 3;
    if (curve >= kLeastCurve && columns >= 24) {
      if (run.planned_steps) lines.push_back(progress_line(run, columns, colour));
      append(lines, Curve(run, columns, run.planned_steps ? curve - 1 : curve).lines(colour));
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
  append(lines, part_lines(run, 80, false));
  if (!run.note.empty()) lines.push_back(printable(run.note));
  return lines;
}

}  // namespace lockstep
