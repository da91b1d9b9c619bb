// Layouts with families, recompute, micro-batches and domains: cases for ranks on CPUs and on GPUs.
#pragma once

#include <array>

#include "tests/train/layout_rig.h"

namespace lockstep::testing {

struct LayoutCase {
  static constexpr std::array kFamilies{Family::gpt2, Family::llama3};
  static constexpr std::array kRecompute{Recompute::none, Recompute::cheap, Recompute::block};
  static constexpr std::array kMicroBatches{1, 2, 4};
  static constexpr std::array kPerDomain{0, 2, 4};

  Family family = Family::gpt2;
  Layout layout = {};
  Recompute recompute = Recompute::none;
  int micro_batches = 1;  // of a step, on each rank
};
inline std::string name_of(const LayoutCase& c) {
  static constexpr const char* kNames[] = {"none", "cheap", "block"};
  return str(name(c.family), "_", name_of(c.layout), "_", kNames[static_cast<int>(c.recompute)],
             "_", c.micro_batches, "_d", c.layout.per_domain);
}

// Every layout three times. Together the cases have each pair of two values.
inline std::vector<LayoutCase> every_layout_and_pair() {
  std::vector<LayoutCase> cases;
  const auto layouts = all_layouts();
  for (std::size_t i = 0; i < layouts.size(); ++i)
    for (std::size_t k = 0; k < 3; ++k) {
      cases.push_back({.family = LayoutCase::kFamilies[(i + k) % 2],
                       .layout = layouts[i],
                       .recompute = LayoutCase::kRecompute[k],
                       .micro_batches = LayoutCase::kMicroBatches[(i + k) % 3]});
      cases.back().layout.per_domain = LayoutCase::kPerDomain[(i / 3 + k) % 3];
    }
  return cases;
}

}  // namespace lockstep::testing
