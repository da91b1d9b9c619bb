// Any preflight.json is refused, or has numbers and reads back from what is written of it.
#include "tests/fuzz/fuzz.h"
#include "train/preflight/health.h"

namespace lockstep::fuzz {
namespace {

void check(std::string_view text) {
  const auto written = Baseline::parse(Json::parse(text, "baseline")).to_json().dump();
  try {
    const auto again = Baseline::parse(Json::parse(written, "written"));
    LOCKSTEP_CHECK(again.to_json().dump() == written, "it reads back as another");
  } catch (const DataError& error) {
    LOCKSTEP_FAIL(error.what());
  }
}

}  // namespace

std::vector<std::string> seeds() {
  Baseline baseline;
  const auto one = baseline.to_json().dump();
  baseline.keep({.check = "product 1024 x 1024 x 1024 fp32", .value = 1.2e11, .of = "1 rank"},
                "n1/0");
  baseline.keep({.check = "product 1024 x 1024 x 1024 fp32", .value = 1.1e11, .of = "2"}, "n1/0");
  baseline.keep({.check = "all_gather of 2 ranks, latency", .value = 3e-5}, "hosts n1, n2");
  return {one, baseline.to_json().dump(1)};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::check_text(lockstep::fuzz::check, data, size);
}
