#include "launch/version.h"

#include "core/cpu.h"
#include "core/error.h"
#include "launch/commit.h"

namespace lockstep {
namespace {

#if LOCKSTEP_WITH_CUDA
constexpr const char* kCuda = "yes";
#else
constexpr const char* kCuda = "no";
#endif

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

}  // namespace

std::string version_text() {
  return str("lockstep ", LOCKSTEP_VERSION, "\ncommit    ", LOCKSTEP_COMMIT, "\ncompiler  ",
             kCompiler, ", ", LOCKSTEP_BUILD_TYPE, "\ncuda      ", kCuda, "\nprocessor ",
             cpu_name(), ", kernels for ", name(cpu_level()), "\n");
}

}  // namespace lockstep
