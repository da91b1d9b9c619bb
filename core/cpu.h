// Cpu: which instruction set the CPU kernels use. The binary is built for x86-64-v2 (or plain
// aarch64) and holds each kernel once per level; the best level the machine has is chosen at start.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

enum class CpuLevel : std::uint8_t { baseline, avx2, avx512, avx512_bf16 };

const char* name(CpuLevel level);

bool cpu_supports(CpuLevel level);

// The best supported level, or the one that the environment variable LOCKSTEP_CPU names. Throws
// ConfigError when that is unknown or more than the machine has. Constant for the process.
CpuLevel cpu_level();

std::string cpu_name();  // "AMD EPYC 9B14", for logs and records

}  // namespace lockstep
