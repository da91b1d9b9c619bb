#include "core/gpu.h"

#include <charconv>
#include <string_view>

namespace lockstep::gpu {

bool covers(const std::string& architectures, int major, int minor) {
  for (std::size_t begin = 0; begin < architectures.size();) {
    const auto end = std::min(architectures.find(';', begin), architectures.size());
    const std::string_view entry(architectures.data() + begin, end - begin);
    begin = end + 1;
    int number = 0;
    const auto suffix = std::from_chars(entry.data(), entry.data() + entry.size(), number).ptr;
    const char kind = suffix == entry.data() + entry.size() ? ' ' : *suffix;
    if (number / 10 == major && (kind == 'a' ? number % 10 == minor : number % 10 <= minor))
      return true;
  }
  return false;
}

}  // namespace lockstep::gpu
