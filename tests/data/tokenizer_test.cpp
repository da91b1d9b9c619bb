#include "data/tokenizer.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Tokenizer, every_byte_survives_the_round_trip) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte)
    text.push_back(static_cast<char>(byte));
  const auto tokens = encode_bytes(text);
  ASSERT_EQ(tokens.size(), 256u);
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(tokens[static_cast<std::size_t>(byte)], byte);
  EXPECT_EQ(decode_bytes(tokens), text);
}

TEST(Tokenizer, what_is_no_byte_is_left_out_of_the_text) {
  const std::vector<std::int32_t> tokens{kDocumentToken, 'a', 300, -1, 'b'};
  EXPECT_EQ(decode_bytes(tokens), "ab");
}

}  // namespace
}  // namespace lockstep
