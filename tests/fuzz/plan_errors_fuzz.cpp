// Any residuals are rejected, or correct a plan by numbers and survive a round trip.
#include <cmath>

#include "launch/plan/plan_errors.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::plan_errors_fuzz {
void check_corrected(const PlanErrors& plan_errors, const std::string& key) {
  StepTime planned;
  planned.seconds.fill(1);
  const auto time = plan_errors.corrected(key, planned);
  if (!time) return;
  for (const double seconds : time->seconds)
    LOCKSTEP_CHECK(seconds >= 0 && std::isfinite(seconds), key, ": ", seconds);
}

void check(std::string_view text) {
  const auto plan_errors = PlanErrors::parse(Json::parse(text, "residuals"));
  LOCKSTEP_CHECK(plan_errors.runs().size() <= PlanErrors::kMostRuns, "runs");
  for (const PlanErrorRun& run : plan_errors.runs())
    check_corrected(plan_errors, run.key);
  check_corrected(plan_errors, "of another run");
  check_reads_back(plan_errors.to_json().dump(), [](const std::string& written) {
    return PlanErrors::parse(Json::parse(written, "written")).to_json().dump();
  });
}

Seeds seeds() {
  PlanErrors plan_errors;
  const auto one = plan_errors.to_json().dump();
  for (const char* key : {"llama3 8.03B, 1 x 8192 of 4194304 tokens", "gpt2"}) {
    PlanErrorRun run{.key = key, .planned = {}, .measured = {}};
    run.planned[Component::products] = 0.25;
    run.measured[Component::products] = 0.5;
    run.measured[Component::other] = 1e-3;
    plan_errors.add(run);
  }
  return {one, plan_errors.to_json().dump(2)};
}

const Target target("plan_errors", seeds, check);

}  // namespace lockstep::fuzz::plan_errors_fuzz
