// A preloaded library (LD_PRELOAD) that stops its process by SIGSTOP, once, right before the call
// STOP_CALL (rename, open or write) on a file whose path has STOP_PATH in it.
#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>

namespace {

void stop_at(const char* call, const char* path) {
  static std::atomic<bool> stopped = false;
  const char* const asked = std::getenv("STOP_CALL");
  const char* const place = std::getenv("STOP_PATH");
  if (asked == nullptr || place == nullptr || std::strcmp(asked, call) != 0 ||
      std::strstr(path, place) == nullptr || stopped.exchange(true))
    return;
  kill(getpid(), SIGSTOP);
}

}  // namespace

extern "C" {

int rename(const char* from, const char* to) noexcept {
  static const auto real = reinterpret_cast<decltype(&rename)>(dlsym(RTLD_NEXT, "rename"));
  stop_at("rename", to);
  return real(from, to);
}

int open(const char* path, int flags, ...) {
  static const auto real = reinterpret_cast<decltype(&open)>(dlsym(RTLD_NEXT, "open"));
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  stop_at("open", path);
  return real(path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, std::size_t count) {
  static const auto real = reinterpret_cast<decltype(&write)>(dlsym(RTLD_NEXT, "write"));
  char path[4096] = {};
  if (readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path - 1) > 0)
    stop_at("write", path);
  return real(descriptor, bytes, count);
}

}  // extern "C"
