// Any preflight.json is rejected, or has numbers and survives a round trip.
#include "launch/preflight/health.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::preflight_baseline_fuzz {
void check(std::string_view text) {
  const auto again = [](std::string_view from) {
    return Baseline::parse(Json::parse(from, "baseline")).to_json().dump();
  };
  check_reads_back(again(text), again);
}

Seeds seeds() {
  Baseline baseline;
  const auto one = baseline.to_json().dump();
  baseline.keep({.check = "product 1024 x 1024 x 1024 fp32", .value = 1.2e11, .of = "1 rank"},
                "n1/0");
  baseline.keep({.check = "product 1024 x 1024 x 1024 fp32", .value = 1.1e11, .of = "2"}, "n1/0");
  baseline.keep({.check = "all_gather of 2 ranks, latency", .value = 3e-5}, "hosts n1, n2");
  return {one, baseline.to_json().dump(1)};
}

const Target target("preflight_baseline", seeds, check);

}  // namespace lockstep::fuzz::preflight_baseline_fuzz
