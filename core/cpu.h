// CpuLevel is the instruction set that the CPU kernels use. The binary is built for x86-64-v2 (or
// plain aarch64) and has each kernel once per level. The best level of the CPU is chosen at start.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class CpuLevel : std::uint8_t { baseline, avx2, avx512, avx512_bf16 };

const char* name(CpuLevel level);

bool cpu_supports(CpuLevel level);

// The best supported level, or the level that the environment variable LOCKSTEP_CPU names. Throws
// ConfigError if that level is unknown or not supported. Constant for the process.
CpuLevel cpu_level();

std::string cpu_name();  // "AMD EPYC 9B14", for logs and records

}  // namespace lockstep
