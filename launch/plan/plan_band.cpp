#include "launch/plan/plan_band.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep {
namespace {

// Quantiles 0.1 and 0.9 of measured / planned time: on GPUs by tests/bench/published/leave_out.py,
// on CPUs by tests/bench/plan_bench.py.
struct BandOfGpus {
  int most;
  PlanFile::Band band;
  const char* runs;
};
constexpr std::array kBandsOfGpus{
    BandOfGpus{8, {0.974, 1.161}, "published runs on up to 8 GPUs"},
    BandOfGpus{128, {0.946, 1.140}, "published runs on 9 to 128 GPUs"}};
constexpr PlanFile::Band kBandOfMoreGpus{0.937, 1.167};
constexpr PlanFile::Band kBandOfProcessors{0.984, 1.037};
constexpr std::array<std::string_view, 4> kPublishedGpus{"NVIDIA A100", "NVIDIA H100",
                                                         "NVIDIA H100 at 500 W", "NVIDIA H200"};

}  // namespace

PlanBand plan_band(const Cluster& cluster, int ranks) {
  if (cluster.device == Device::Kind::cpu) {
    if (!cluster.is_measured) return {};
    return {.band = kBandOfProcessors, .runs = "runs on measured CPUs"};
  }
  if (std::ranges::find(kPublishedGpus, cluster.hardware.name) == kPublishedGpus.end()) return {};
  for (const auto& [most, band, runs] : kBandsOfGpus)
    if (ranks <= most) return {.band = band, .runs = runs};
  return {.band = kBandOfMoreGpus, .runs = "published runs on more than 128 GPUs"};
}

}  // namespace lockstep
