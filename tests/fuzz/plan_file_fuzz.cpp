// Any plan.json is rejected, or has only possible values and survives a round trip.
#include <cmath>

#include "tests/fuzz/fuzz.h"
#include "train/observe/plan_file.h"

namespace lockstep::fuzz::plan_file_fuzz {
void check_step(const PlanFile::Step& step) {
  LOCKSTEP_CHECK(step.seconds >= 0 && std::isfinite(step.seconds), "step_seconds");
  LOCKSTEP_CHECK(step.tokens_per_second >= 0, "tokens_per_second");
  LOCKSTEP_CHECK(!(step.mfu < 0) && !(step.mfu_square < 0), "mfu");
  for (const auto& [name, seconds] : step.components)
    LOCKSTEP_CHECK(seconds >= 0 && std::isfinite(seconds), name);
}

void check(std::string_view text) {
  const auto plan = PlanFile::parse(Json::parse(text, "plan"));
  check_step(plan.step);
  if (plan.corrected) check_step(*plan.corrected);
  for (const auto& [name, bytes] : plan.memory)
    LOCKSTEP_CHECK(bytes >= 0, name);
  LOCKSTEP_CHECK(plan.capacity_bytes >= 0 && plan.checkpoint_bytes >= 0, "bytes");
  check_reads_back(plan.to_json().dump(), [](const std::string& written) {
    return PlanFile::parse(Json::parse(written, "written")).to_json().dump();
  });
}

Seeds seeds() {
  PlanFile plan{.step = {.seconds = 0.4, .tokens_per_second = 1e5, .mfu = 0.48},
                .memory = {{"weights", 1 << 30}},
                .capacity_bytes = 1 << 30,
                .checkpoint_bytes = 12,
                .cluster = "8 GPUs"};
  plan.step.components = {{"products", 0.3}, {"other", 0}};
  const auto raw = plan.to_json().dump();
  plan.corrected = plan.step;
  return {raw, plan.to_json().dump(1)};
}

const Target target("plan_file", seeds, check);

}  // namespace lockstep::fuzz::plan_file_fuzz
