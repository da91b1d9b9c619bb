#include "train/step_line.h"

#include <cmath>
#include <gtest/gtest.h>

namespace lockstep::step_line_test {

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

TEST(StepLine, says_what_the_documents_show) {
  EXPECT_EQ(step_line(sample(), false),
            "step 1200/9536 12.6% | loss 3.2145 (+0.3z) | grad 0.41 | lr 5.9e-4 |  412 ms | "
            "2.54M tok/s | MFU 47.1% | data 0.0% | mem 71.2/79.6 GiB | eta 58m");
}

TEST(StepLine, mfu_stands_beside_what_was_planned) {
  auto r = sample();
  r.planned_utilization = 0.4834;
  EXPECT_NE(step_line(r, false).find(" | MFU 47.1% (plan 48.3%) | data "), std::string::npos)
      << step_line(r, false);
}

TEST(StepLine, mfu_above_what_is_possible_is_not_shown_but_why) {
  auto r = sample();
  r.model_flops_utilization = StepReport::kUnknown;
  r.peak_is_too_low = true;
  EXPECT_NE(step_line(r, false).find(" | MFU   n/a (peak too low) | data "), std::string::npos)
      << step_line(r, false);
}

TEST(StepLine, fields_stay_under_each_other_from_step_to_step) {
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
  EXPECT_NE(step_line(first, false).find("MFU  n/a%"), 0u);
}

TEST(StepLine, a_skipped_step_says_so_in_place_of_the_score) {
  auto r = sample();
  r.skipped = true;
  r.loss = StepReport::kUnknown;
  EXPECT_NE(step_line(r, false).find("| loss    nan skipped | "), std::string::npos)
      << step_line(r, false);
}

TEST(StepLine, colour_is_only_where_it_was_asked_for) {
  auto r = sample();
  r.loss_z = 4.5;
  EXPECT_EQ(step_line(r, false).find('\x1b'), std::string::npos);
  EXPECT_NE(step_line(r, true).find("\x1b[33m(+4.5z)\x1b[0m"), std::string::npos);
  r.loss_z = 2.5;
  EXPECT_EQ(step_line(r, true).find('\x1b'), std::string::npos);
  r.skipped = true;
  EXPECT_NE(step_line(r, true).find("\x1b[31mskipped\x1b[0m"), std::string::npos);
}

TEST(StepLine, a_validation_has_a_line_of_its_own) {
  auto r = sample();
  r.validation_loss = 3.19874;
  EXPECT_EQ(validation_line(r), "step 1200/9536       | validation loss 3.1987");
}

}  // namespace lockstep::step_line_test
