#include "core/cpu.h"

#include <cstdlib>
#include <fstream>
#include <string_view>

#include "core/error.h"

namespace lockstep {
namespace {

constexpr CpuLevel kLevels[] = {CpuLevel::avx512_bf16, CpuLevel::avx512, CpuLevel::avx2,
                                CpuLevel::baseline};

CpuLevel choose() {
  const char* forced = std::getenv("LOCKSTEP_CPU");
  if (forced == nullptr || *forced == '\0') {
    for (const auto level : kLevels)
      if (cpu_supports(level)) return level;
    throw Error("this build needs a CPU with x86-64-v2 (SSE4.2, POPCNT); this CPU lacks it");
  }
  for (const auto level : kLevels) {
    if (std::string_view(forced) != name(level)) continue;
    if (cpu_supports(level)) return level;
    throw ConfigError(str("LOCKSTEP_CPU=", forced, ": not supported by this CPU (", cpu_name(),
                          "); unset it to use the best level of this CPU"));
  }
  throw ConfigError(str("LOCKSTEP_CPU=", forced,
                        ": expected baseline, avx2, avx512 or avx512_bf16; unset it to use the "
                        "best level of this CPU"));
}

}  // namespace

const char* name(CpuLevel level) {
  switch (level) {
    case CpuLevel::baseline: return "baseline";
    case CpuLevel::avx2: return "avx2";
    case CpuLevel::avx512: return "avx512";
    case CpuLevel::avx512_bf16: return "avx512_bf16";
  }
  return "?";
}

bool cpu_supports(CpuLevel level) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  switch (level) {
    case CpuLevel::baseline:
      return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
    case CpuLevel::avx2: return avx2;
    case CpuLevel::avx512: return avx512;
    case CpuLevel::avx512_bf16: return avx512 && __builtin_cpu_supports("avx512bf16");
  }
  return false;
#else
  return level == CpuLevel::baseline;
#endif
}

CpuLevel cpu_level() {
  static const CpuLevel level = choose();
  return level;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

}  // namespace lockstep
