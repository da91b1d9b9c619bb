#include "core/error.h"

#include "core/start_thread.h"
#include "tests/files.h"
#include "tests/no_threads.h"

namespace lockstep::testing::error_test {

template <class E>
int code_in_context() {
  try {
    in_context([] { throw E("why"); }, "file", ": at ", 7);
  } catch (const E& error) {
    EXPECT_STREQ(error.what(), "file: at 7: why");
    EXPECT_EQ(typeid(error), typeid(E));
    return error.exit_code();
  }
  return 0;
}

TEST(Error, a_context_keeps_what_kind_of_error_it_is) {
  EXPECT_EQ(code_in_context<DataError>(), 65);
  EXPECT_EQ(code_in_context<AccessError>(), 65);
  EXPECT_EQ(code_in_context<StorageError>(), 74);
  EXPECT_EQ(code_in_context<RefusedError>(), 77);
  EXPECT_EQ(code_in_context<UnreachableError>(), 75);
  EXPECT_EQ(in_context([] { return 3; }, "not thrown"), 3);
}

TEST(Error, a_thread_that_cannot_be_started_is_said) {
  {
    const NoThreads none;
    const auto text = message_of<TransientError>([] { start_thread([] {}).join(); });
    expect_contains(text, "no thread can be started: ");
    expect_contains(text, "ulimit -u");
  }
  start_thread([] {}).join();
}

}  // namespace lockstep::testing::error_test
