#include "train/memory.h"

#include <cstdlib>
#include <cstring>

#include "tests/files.h"

namespace lockstep::testing {
namespace {

TEST(Memory, the_peak_counts_what_was_used_and_freed) {
  constexpr std::size_t kBytes = 512 << 20;  // more than anything else here has used
  const auto before = used_memory_bytes(Device{});
  void* memory = std::malloc(kBytes);
  std::memset(memory, 1, kBytes);
  volatile char used = static_cast<char*>(memory)[kBytes / 2];
  EXPECT_EQ(used, 1);
  std::free(memory);
  EXPECT_GT(before, 1 << 20);
  EXPECT_GE(used_memory_bytes(Device{}), static_cast<std::int64_t>(kBytes));
}

TEST(Memory, what_is_available_is_part_of_the_machine) {
  EXPECT_GT(available_memory_bytes(Device{}), 0);
  EXPECT_LE(available_memory_bytes(Device{}), all_memory_bytes(Device{}));
  EXPECT_LE(all_memory_bytes(Device{}),
            static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE));
}

TEST(Memory, more_than_is_available_is_refused_with_both_figures_and_a_remedy) {
  require_memory(Device{}, {.device = 1}, "nothing");
  const auto message = message_of<ConfigError>(
      [] { require_memory(Device{}, {.device = std::int64_t{1} << 50}, "buy a smaller model"); });
  expect_contains(message, "this needs 1024 TiB of memory, and ");
  expect_contains(message, " are free on this machine; buy a smaller model");
}

}  // namespace
}  // namespace lockstep::testing
