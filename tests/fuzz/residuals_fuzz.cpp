// Any residuals are rejected, or correct a plan by numbers and survive a round trip.
#include <cmath>

#include "launch/plan/residuals.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::residuals_fuzz {
void check_corrected(const Residuals& residuals, const std::string& key) {
  StepTime planned;
  planned.seconds.fill(1);
  const auto time = residuals.corrected(key, planned);
  if (!time) return;
  for (const double seconds : time->seconds)
    LOCKSTEP_CHECK(seconds >= 0 && std::isfinite(seconds), key, ": ", seconds);
}

void check(std::string_view text) {
  const auto residuals = Residuals::parse(Json::parse(text, "residuals"));
  LOCKSTEP_CHECK(residuals.runs().size() <= Residuals::kMostRuns, "runs");
  for (const ResidualRun& run : residuals.runs())
    check_corrected(residuals, run.key);
  check_corrected(residuals, "of another run");
  check_reads_back(residuals.to_json().dump(), [](const std::string& written) {
    return Residuals::parse(Json::parse(written, "written")).to_json().dump();
  });
}

Seeds seeds() {
  Residuals residuals;
  const auto one = residuals.to_json().dump();
  for (const char* key : {"llama3 8.03B, 1 x 8192 of 4194304 tokens", "gpt2"}) {
    ResidualRun run{.key = key, .planned = {}, .measured = {}};
    run.planned[Component::products] = 0.25;
    run.measured[Component::products] = 0.5;
    run.measured[Component::other] = 1e-3;
    residuals.add(run);
  }
  return {one, residuals.to_json().dump(2)};
}

const Target target("residuals", seeds, check);

}  // namespace lockstep::fuzz::residuals_fuzz
