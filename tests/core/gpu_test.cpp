#include "core/gpu.h"

#include <gtest/gtest.h>

namespace lockstep::gpu::gpu_test {

TEST(Gpu, code_runs_on_later_minor_versions_but_with_features_only_on_one) {
  struct Case {
    const char* architectures;
    int major, minor;
    bool covered;
  };
  const Case cases[] = {{"80", 8, 0, true},      {"80", 8, 9, true},       {"86", 8, 0, false},
                        {"80", 9, 0, false},     {"90", 10, 0, false},     {"100f", 10, 3, true},
                        {"100f", 12, 0, false},  {"90a", 9, 0, true},      {"90a", 10, 0, false},
                        {"100a", 10, 0, true},   {"100a", 10, 3, false},   {"100a", 9, 0, false},
                        {"80;100a", 8, 0, true}, {"80;100a", 10, 0, true}, {"80;100a", 9, 0, false},
                        {"", 9, 0, false}};
  for (const auto& c : cases)
    EXPECT_EQ(covers(c.architectures, c.major, c.minor), c.covered)
        << c.architectures << " on " << c.major << "." << c.minor;
}

}  // namespace lockstep::gpu::gpu_test
