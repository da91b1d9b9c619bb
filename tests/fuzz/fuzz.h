// What a fuzz target is made of: LLVMFuzzerTestOneInput, which libFuzzer calls too, and the seeds
// that the driver mutates. A target refuses bad input by DataError, which it catches; whatever else
// leaves it, a crash, a sanitizer's report or another exception, is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "core/error.h"

extern "C" int LLVMFuzzerTestOneInput(  // NOLINT(readability-identifier-naming): libFuzzer's name
    const std::uint8_t* data, std::size_t size);

namespace lockstep::fuzz {

std::vector<std::string> seeds();  // small inputs that the target accepts

// check(text), which may refuse it.
inline int check_text(void (*check)(std::string_view), const std::uint8_t* data, std::size_t size) {
  try {
    check({reinterpret_cast<const char*>(data), size});
  } catch (const DataError&) {
  }
  return 0;
}

// A file in memory, for readers that want a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    LOCKSTEP_CHECK(descriptor_ >= 0, "no file in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }

  std::filesystem::path path() const { return str("/proc/self/fd/", descriptor_); }
  void set(const std::uint8_t* data, std::size_t size) const {
    LOCKSTEP_CHECK(ftruncate(descriptor_, 0) == 0, "cannot empty the file in memory");
    LOCKSTEP_CHECK(pwrite(descriptor_, data, size, 0) == static_cast<ssize_t>(size),
                   "cannot fill the file in memory");
  }

 private:
  int descriptor_;
};

}  // namespace lockstep::fuzz
