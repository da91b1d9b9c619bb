#include "train/observe/step_line.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/wording.h"

namespace lockstep::testing::step_line_test {

constexpr const char* kReader = "train/step_line";

StepReport sample() {
  StepReport r;
  r.step = 1200;
  r.steps = 9536;
  r.loss = 3.21449;
  r.loss_z = 0.31;
  r.grad_norm = 0.412;
  r.learning_rate = 5.94e-4;
  r.step_seconds = 0.4123;
  r.tokens_per_second = 2.541e6;
  r.model_flops_utilization = 0.4712;
  r.data_wait_seconds = 0.0001;
  r.peak_bytes = std::int64_t{712} << 30;
  r.peak_bytes /= 10;
  r.limit_bytes = std::int64_t{796} << 30;
  r.limit_bytes /= 10;
  r.eta_seconds = 58 * 60;
  return r;
}

TEST(StepLine, matches_the_documentation) {
  expect_wording(kReader, "step", step_line(sample(), false));
  auto planned = sample(), too_low = sample(), skipped = sample(), validated = sample();
  planned.planned_utilization = 0.4834;
  expect_contains(step_line(planned, false), "48.3%");
  expect_wording(kReader, "step with a plan", step_line(planned, false));
  planned.least_planned_utilization = 0.447;
  planned.most_planned_utilization = 0.528;
  expect_wording(kReader, "step with a plan and its band", step_line(planned, false));
  too_low.model_flops_utilization = StepReport::kUnknown;
  too_low.peak_is_too_low = true;
  expect_wording(kReader, "step above the peak", step_line(too_low, false));
  skipped.skipped = true;
  skipped.loss = StepReport::kUnknown;
  expect_wording(kReader, "skipped step", step_line(skipped, false));
  validated.validation_loss = 3.19874;
  expect_wording(kReader, "validation", validation_line(validated));
}

TEST(StepLine, fields_keep_their_columns) {
  auto first = sample(), last = sample();
  first.step = 7;
  first.loss_z = StepReport::kUnknown;
  first.grad_norm = 123.4;
  first.learning_rate = 0;
  first.step_seconds = 12.34;
  first.tokens_per_second = 812;
  first.model_flops_utilization = StepReport::kUnknown;
  first.data_wait_seconds = 0.5;
  first.peak_bytes = std::int64_t{3} << 30;
  last.loss_z = -2.44;
  last.step_seconds = 0.0567;
  const auto eta = [](const std::string& line) { return line.find("| eta "); };
  EXPECT_EQ(eta(step_line(first, false)), eta(step_line(sample(), false)))
      << step_line(first, false);
  EXPECT_EQ(eta(step_line(last, false)), eta(step_line(sample(), false))) << step_line(last, false);
}

TEST(StepLine, has_colour_only_on_request) {
  auto r = sample();
  r.loss_z = 4.5;
  EXPECT_EQ(step_line(r, false).find('\x1b'), std::string::npos);
  expect_contains(step_line(r, true), "\x1b[33m(+4.5z)\x1b[0m");
  r.loss_z = 2.5;
  EXPECT_EQ(step_line(r, true).find('\x1b'), std::string::npos);
  r.skipped = true;
  expect_contains(step_line(r, true), "\x1b[31m");
}

}  // namespace lockstep::testing::step_line_test
