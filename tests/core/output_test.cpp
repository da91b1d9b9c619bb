#include "core/output.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <iostream>

namespace lockstep::testing::output_test {

// Runs in its own process with a full disk as standard output; exits with the error's code.
template <class Write>
[[noreturn]] void write_to_full_disk(Write&& write) {
  if (std::freopen("/dev/full", "w", stdout) == nullptr) std::exit(1);
  try {
    write();
  } catch (const OutputError& error) {
    std::cerr << error.what() << '|';
    std::_Exit(error.exit_code());
  }
  std::_Exit(0);
}

TEST(OutputDeathTest, a_failed_write_is_an_error_with_the_reason) {
  for (const std::size_t bytes : {1, 100'000})  // also more than the buffer holds
    EXPECT_EXIT(write_to_full_disk([&] { write_output(std::string(bytes, 'x')); }),
                ::testing::ExitedWithCode(74), "^standard output: .*: No space left on device[|]$");
  for (const std::size_t bytes : {1, 100'000})
    EXPECT_EXIT(write_to_full_disk([&] {
                  std::cout << std::string(bytes, 'x');
                  flush_output();
                }),
                ::testing::ExitedWithCode(74), "^standard output: ");
}

TEST(OutputDeathTest, a_write_is_visible_at_once) {
  EXPECT_EXIT(
      {
        std::freopen("/dev/stderr", "w", stdout);
        write_output("all of it");
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "all of it");
}

}  // namespace lockstep::testing::output_test
