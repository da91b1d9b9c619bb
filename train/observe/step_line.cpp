#include "train/observe/step_line.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

#include "core/error.h"
#include "core/units.h"

namespace lockstep {
namespace {

constexpr double kGiB = 1 << 30;

std::string padded(const std::string& text, int width) {
  return formatted("%*s", width, text.c_str());
}

std::string percent(double ratio, int width) {
  return std::isnan(ratio) ? padded("n/a", width + 1) : formatted("%*.1f%%", width, 100 * ratio);
}

std::string step_of(const StepReport& r) {
  const auto steps = std::to_string(r.steps);
  return "step " + padded(std::to_string(r.step), static_cast<int>(steps.size())) + "/" + steps;
}

std::string painted(const std::string& text, const char* code, bool paint) {
  return paint ? str("\x1b[", code, "m", text, "\x1b[0m") : text;
}

// Remark after the loss, in seven characters.
std::string remark(const StepReport& r, bool colour) {
  if (r.skipped) return painted("skipped", "31", colour);
  if (std::isnan(r.loss_z)) return std::string(7, ' ');
  return painted(padded(formatted("(%+.1fz)", r.loss_z), 7), "33",
                 colour && std::abs(r.loss_z) > 3);
}

// 5.9e-4: the exponent without the zero that printf puts there.
std::string rate(double value) {
  auto text = formatted("%.1e", value);
  const auto e = text.find('e');
  if (e != text.npos && text.size() == e + 4 && text[e + 2] == '0') text.erase(e + 2, 1);
  return text;
}

std::string memory(const StepReport& r) {
  const auto used = three_digits(static_cast<double>(r.peak_bytes) / kGiB);
  if (r.limit_bytes == 0) return used + " GiB";
  return str(used, "/", trimmed(three_digits(static_cast<double>(r.limit_bytes) / kGiB)), " GiB");
}

bool terminal_takes_colour() {
  const char* term = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");  // no-color.org
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb" &&
         (no_colour == nullptr || *no_colour == '\0');
}

std::string mfu(const StepReport& r) {
  return percent(r.model_flops_utilization, 4) + (r.peak_is_too_low ? " (peak too low)" : "");
}

std::string planned(const StepReport& r) {
  if (std::isnan(r.planned_utilization)) return "";
  const bool has_band = !std::isnan(r.least_planned_utilization);
  return str(" (plan ", percent(r.planned_utilization, 3),
             has_band ? str(", ", percent(r.least_planned_utilization, 3), " to ",
                            percent(r.most_planned_utilization, 3))
                      : std::string(),
             ")");
}

}  // namespace

std::string step_line(const StepReport& r, bool colour) {
  const double done = r.steps > 0 ? static_cast<double>(r.step) / static_cast<double>(r.steps) : 0;
  const double data = r.step_seconds > 0 ? r.data_wait_seconds / r.step_seconds : 0;
  return str(step_of(r), " ", percent(done, 4), " | loss ", formatted("%6.4f", r.loss), " ",
             remark(r, colour), " | grad ", three_digits(r.grad_norm), " | lr ",
             rate(r.learning_rate), " | ", padded(human_seconds(r.step_seconds), 7), " | ",
             padded(human_count(r.tokens_per_second), 5), " tok/s | MFU ", mfu(r), planned(r),
             " | data ", percent(data, 3), " | mem ", memory(r), " | eta ",
             human_eta(r.eta_seconds));
}

std::string validation_line(const StepReport& r) {
  return str(step_of(r), "       | validation loss ",
             formatted("%.4f", r.validation_loss.value_or(StepReport::kUnknown)));
}

void print_step(const StepReport& report) {
  auto lines = step_line(report, terminal_takes_colour()) + "\n";
  if (report.validation_loss) lines += validation_line(report) + "\n";
  std::fwrite(lines.data(), 1, lines.size(), stderr);  // unbuffered: one write(2)
}

}  // namespace lockstep
