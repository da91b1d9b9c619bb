// main of kernels_tests and model_tests. If LOCKSTEP_CPU names a level that this CPU lacks, it
// prints one line and exits with 77, which CTest counts as skipped.
#include <cstdlib>
#include <gtest/gtest.h>
#include <iostream>
#include <string_view>

#include "core/cpu.h"

namespace {

bool machine_has_forced_level() {
  using lockstep::CpuLevel;
  const char* forced = std::getenv("LOCKSTEP_CPU");
  if (forced == nullptr) return true;
  for (const auto level :
       {CpuLevel::baseline, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::avx512_bf16})
    if (std::string_view(forced) == lockstep::name(level)) return lockstep::cpu_supports(level);
  return true;  // an unknown name: the first operator rejects it
}

}  // namespace

int main(int argc, char** argv) {
  if (!machine_has_forced_level()) {
    std::cout << "skipped: this processor (" << lockstep::cpu_name() << ") has no "
              << std::getenv("LOCKSTEP_CPU") << '\n';
    return 77;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
