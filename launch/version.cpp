#include "launch/version.h"

#include "core/cpu.h"
#include "core/error.h"
#include "core/gpu.h"
#include "launch/commit.h"

namespace lockstep {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

std::string gpus() {
  const auto found = gpu::devices();
  if (found.count == 0) return "none: " + found.why_not;
  const auto p = gpu::properties(0);
  return str(found.count, " x ", p.name, ", compute capability ", p.major, ".", p.minor);
}

}  // namespace

std::string version_text() {
  return str("lockstep ", LOCKSTEP_VERSION, "\ncommit    ", LOCKSTEP_COMMIT, "\ncompiler  ",
             kCompiler, ", ", LOCKSTEP_BUILD_TYPE, "\ncpu       ", cpu_name(), ", kernels for ",
             name(cpu_level()), "\ngpu       ", gpus(), "\n");
}

std::string version_and_commit() {
  return LOCKSTEP_VERSION ", commit " LOCKSTEP_COMMIT;
}

}  // namespace lockstep
