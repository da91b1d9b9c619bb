// A preloaded library (LD_PRELOAD) with faulty storage for rank FAULT_RANK, as soon as the file
// FAULT_FROM exists. FAULT=hang never ends a sync; FAULT=error fails each read.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

namespace {

bool is(const char* fault) {
  const char* const asked = std::getenv("FAULT");
  const char* const victim = std::getenv("FAULT_RANK");
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* const from = std::getenv("FAULT_FROM");
  return asked != nullptr && victim != nullptr && rank != nullptr && from != nullptr &&
         std::strcmp(asked, fault) == 0 && std::strcmp(victim, rank) == 0 &&
         access(from, F_OK) == 0;
}

}  // namespace

extern "C" {

int fsync(int descriptor) {
  static const auto real = reinterpret_cast<decltype(&fsync)>(dlsym(RTLD_NEXT, "fsync"));
  while (is("hang"))
    pause();
  return real(descriptor);
}

ssize_t pread(int descriptor, void* into, std::size_t bytes, off_t offset) {
  static const auto real = reinterpret_cast<decltype(&pread)>(dlsym(RTLD_NEXT, "pread"));
  if (!is("error")) return real(descriptor, into, bytes, offset);
  errno = EIO;
  return -1;
}

}  // extern "C"
