#include "core/affinity.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sched.h>

#include "core/error.h"

namespace lockstep {
namespace {

// The kernel's mask has a bit per CPU and as many words as needed; cpu_set_t ends at 1024 CPUs.
using Mask = std::vector<unsigned long>;
constexpr std::size_t kBits = 8 * sizeof(unsigned long);
constexpr std::size_t kMostWords = 1 << 16;
constexpr int kMostProcessors = 1 << 16;

std::size_t bytes(const Mask& mask) {
  return mask.size() * sizeof(unsigned long);
}

}  // namespace

std::vector<int> affinity() {
  Mask mask(1);
  while (sched_getaffinity(0, bytes(mask), reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
    if (errno != EINVAL || mask.size() >= kMostWords) return {};
    mask.assign(2 * mask.size(), 0);  // more CPUs than bits
  }
  std::vector<int> processors;
  for (std::size_t i = 0; i < mask.size() * kBits; ++i)
    if ((mask[i / kBits] >> i % kBits & 1) != 0) processors.push_back(static_cast<int>(i));
  return processors;
}

void set_affinity(std::span<const int> processors, pthread_t thread) {
  std::array<unsigned long, 1024> mask{};  // 65536 CPUs, without an allocation
  for (const int processor : processors)
    if (const auto i = static_cast<std::size_t>(processor); i < mask.size() * kBits)
      mask[i / kBits] |= 1ul << i % kBits;
  if (!processors.empty())
    pthread_setaffinity_np(thread, sizeof mask, reinterpret_cast<cpu_set_t*>(mask.data()));
}

std::optional<double> seconds_without_cpu() {
  std::error_code error;
  double sum = 0;
  bool is_told = false;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(thread.path() / "schedstat");
    double ran = 0, waited = 0;              // nanoseconds
    if (!(file >> ran >> waited)) continue;  // the thread ended
    sum += 1e-9 * waited;
    is_told = true;
  }
  return is_told ? std::optional(sum) : std::nullopt;
}

std::string cpu_list(std::span<const int> processors) {
  std::string list;
  for (std::size_t begin = 0, end = 0; begin < processors.size(); begin = end) {
    for (end = begin + 1; end < processors.size() && processors[end] == processors[end - 1] + 1;
         ++end) {
    }
    list += str(list.empty() ? "" : ",", processors[begin]);
    if (end - begin > 1) list += str("-", processors[end - 1]);
  }
  return list;
}

std::vector<int> parse_cpu_list(const std::string& list) {
  std::vector<int> processors;
  const char* at = list.data();
  const char* const end = at + list.find_last_not_of(" \n") + 1;
  const auto number = [&] {
    int value = -1;  // no number, or too large
    at = std::from_chars(at, end, value).ptr;
    return value;
  };
  for (;; ++at) {
    const int first = number();
    int last = first;
    if (at < end && *at == '-') ++at, last = number();
    if (first < 0 || last < first || last >= kMostProcessors) return {};
    for (int i = first; i <= last; ++i)
      processors.push_back(i);
    if (at == end) return processors;
    if (*at != ',') return {};
  }
}

}  // namespace lockstep
