// Lets libFuzzer drive the target that the environment variable LOCKSTEP_FUZZ_TARGET names.
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(  // NOLINT(readability-identifier-naming): libFuzzer's name
    const std::uint8_t* data, std::size_t size) {
  using lockstep::fuzz::Target;
  static const Target& target = []() -> const Target& {
    const char* name = std::getenv("LOCKSTEP_FUZZ_TARGET");
    const auto found = Target::all().find(name == nullptr ? "" : name);
    if (found != Target::all().end()) return *found->second;
    std::fprintf(stderr, "set LOCKSTEP_FUZZ_TARGET to one of:\n");
    for (const auto& [known, its] : Target::all())
      std::fprintf(stderr, "%s\n", known.c_str());
    std::_Exit(64);  // std::exit would count as a finding
  }();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
