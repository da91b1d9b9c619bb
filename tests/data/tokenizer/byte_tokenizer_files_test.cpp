#include "data/tokenizer/byte_tokenizer_files.h"

#include <gtest/gtest.h>
#include <random>

#include "core/utf8.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "tests/files.h"

namespace lockstep::testing::byte_tokenizer_files_test {

TEST(ByteTokenizerFiles, define_the_ids_of_bytes) {
  Tokenizer::About about;
  about.vocabulary = 257;
  const BpeTokenizer from_file(parse_tokenizer(byte_tokenizer_json(), "test"), about);
  const ByteTokenizer bytes;
  std::mt19937 random(5);
  std::vector<std::string> texts{"", " a  b\r\n\n", "1234 don't", "\xe6\xbc\xa2\xf0\x9f\x98\x80"};
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (int n = 0; n < 40; ++n)
      append_utf8(text, random() % 0xd800);
    texts.push_back(text);
  }
  Tokenizer::Memory memory;
  for (const auto& text : texts) {
    std::vector<std::int32_t> ids;
    from_file.encode_plain(text, ids, memory);
    EXPECT_EQ(ids, bytes.encode(text)) << text;
    EXPECT_EQ(from_file.decode(ids), text);
  }
  EXPECT_EQ(from_file.bytes_of(256), "<|endoftext|>");
  EXPECT_TRUE(from_file.is_special(256));
}

TEST(ByteTokenizerFiles, are_the_tokenizer_bytes_again) {
  const TemporaryDirectory directory;
  write_byte_tokenizer(directory.path());
  const auto opened = open_tokenizer(directory.path().string());
  EXPECT_EQ(opened->about().hash, ByteTokenizer().about().hash);
  const auto file = directory / "tokenizer.json";
  EXPECT_TRUE(is_byte_tokenizer(file));
  auto text = slurp(file);
  text[text.find("false")] = 'x';
  spit(file, text);
  EXPECT_FALSE(is_byte_tokenizer(file));
}

}  // namespace lockstep::testing::byte_tokenizer_files_test
