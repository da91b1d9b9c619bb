#include "dist/job/secret.h"

#include <gtest/gtest.h>

#include "dist/job/frame.h"
#include "tests/wording.h"

namespace lockstep::testing::secret_test {

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const auto byte : bytes) {
    text += "0123456789abcdef"[static_cast<int>(byte) / 16];
    text += "0123456789abcdef"[static_cast<int>(byte) % 16];
  }
  return text;
}

// RFC 4231, cases 1 and 2, whose keys are shorter: HMAC fills a key of under 64 bytes with zeros.
TEST(Secret, signs_as_in_the_standard) {
  Bytes32 key{};
  std::fill(key.begin(), key.begin() + 20, std::byte{0x0b});
  EXPECT_EQ(hex(Secret(key).sign(as_bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  key = {};
  const auto jefe = as_bytes("Jefe");
  std::copy(jefe.begin(), jefe.end(), key.begin());
  EXPECT_EQ(hex(Secret(key).sign(as_bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Secret, accepts_only_its_own_signature) {
  const auto secret = Secret::draw();
  const auto text = as_bytes("text");
  auto signature = secret.sign(text);
  EXPECT_TRUE(secret.signed_by(text, signature));
  EXPECT_FALSE(Secret::draw().signed_by(text, signature));
  EXPECT_FALSE(secret.signed_by(as_bytes("texT"), signature));
  EXPECT_FALSE(secret.signed_by(text, std::span(signature).first(31)));
  signature[31] ^= std::byte{1};
  EXPECT_FALSE(secret.signed_by(text, signature));
}

TEST(Secret, is_read_only_from_hexadecimal_digits) {
  const std::string digits = "00112233445566778899aAbBcCdDeEfF0123456789abcdef0123456789ABCDEF";
  EXPECT_EQ(hex(Secret::from_hex(digits).bytes()),
            "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef");
  for (const std::string& wrong : {std::string(), digits.substr(1), digits + "0",
                                   str("g", digits.substr(1)), digits.substr(0, 63) + "-"}) {
    const auto text = message_of<ConfigError>([&] { Secret::from_hex(wrong); });
    EXPECT_EQ(text.find("2233"), std::string::npos) << "the message shows the secret: " << text;
    expect_wording("dist/secret", str(wrong.size(), " digits"), text);
  }
}

TEST(Secret, differs_each_time) {
  EXPECT_NE(hex(Secret::draw().bytes()), hex(Secret::draw().bytes()));
}

}  // namespace lockstep::testing::secret_test
