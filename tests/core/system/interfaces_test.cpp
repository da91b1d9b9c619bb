#include "core/system/interfaces.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "tests/files.h"

namespace lockstep::testing::interfaces_test {

TEST(LocalAddresses, belong_to_the_named_interfaces) {
  const auto loopback = local_addresses("nonesuch,lo");
  EXPECT_NE(std::find(loopback.begin(), loopback.end(), "127.0.0.1"), loopback.end());
  for (const auto& address : local_addresses())
    if (local_addresses().size() > 1) {
      EXPECT_NE(address, "127.0.0.1");
    }
  const auto text = message_of<ConfigError>([] { local_addresses("nonesuch"); });
  expect_contains(text, "LOCKSTEP_INTERFACE is 'nonesuch'");
  expect_contains(text, "lo");  // and other interfaces of this host
}

}  // namespace lockstep::testing::interfaces_test
