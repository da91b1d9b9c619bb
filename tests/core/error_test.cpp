#include "core/error.h"

#include <gtest/gtest.h>

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

TEST(Error, a_context_keeps_the_type_of_the_error) {
  EXPECT_EQ(code_in_context<DataError>(), 65);
  EXPECT_EQ(code_in_context<AccessError>(), 65);
  EXPECT_EQ(code_in_context<StorageError>(), 74);
  EXPECT_EQ(code_in_context<RefusedError>(), 77);
  EXPECT_EQ(code_in_context<UnreachableError>(), 75);
  EXPECT_EQ(in_context([] { return 3; }, "not thrown"), 3);
}

}  // namespace lockstep::testing::error_test
