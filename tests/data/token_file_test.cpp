#include "data/token_file.h"

#include <gtest/gtest.h>

#include "tests/data/shards.h"

namespace lockstep::testing::token_file_test {

constexpr std::int64_t kAny = std::int64_t{1} << 32;

struct Format {
  const char* name;
  std::int32_t vocabulary;
  int header_bytes, token_bytes;
  std::string bytes_of(const Tokens& tokens) const {
    if (header_bytes == 0) return body(tokens, 2);
    return token_bytes == 2 ? gpt2_shard(tokens) : llama3_shard(tokens);
  }
};

class TokenFileTest : public DirectoryTest {
 protected:
  // When it is opened.
  void expect_refused(const std::string& name, const std::string& bytes,
                      std::initializer_list<std::string> pins) const {
    spit(path_, bytes);
    expect_refusal<DataError>("data/token_file", name, pins, [&] { TokenFile file(path_); });
  }

  const std::filesystem::path path_ = directory_ / "tokens.bin";
};

class TokenFileOf : public TokenFileTest, public ::testing::WithParamInterface<Format> {};

TEST_P(TokenFileOf, returns_the_written_tokens) {
  const auto tokens = random_tokens(10'000, GetParam().vocabulary);
  spit(path_, GetParam().bytes_of(tokens));
  const TokenFile file(path_);
  EXPECT_EQ(file.format().name, GetParam().name);
  ASSERT_EQ(file.tokens(), 10'000);
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 10'000}, {0, 1}, {9'999, 1}, {17, 4'099}, {10'000, 0}, {5'000, 2'048}}) {
    Tokens read(static_cast<std::size_t>(count), -7);
    file.read(read, first, GetParam().vocabulary);
    EXPECT_EQ(read, slice(tokens, first, count)) << first << "+" << count;
  }
}

TEST_P(TokenFileOf, a_token_beyond_the_vocabulary_is_an_error_with_file_byte_and_token) {
  auto tokens = random_tokens(5'000, 1'000);
  tokens[4'321] = 1'000;
  spit(path_, GetParam().bytes_of(tokens));
  const TokenFile file(path_);
  Tokens read(1'000);
  file.read(read, 3'321, 1'000);
  EXPECT_EQ(read, slice(tokens, 3'321, 1'000));
  const auto byte = GetParam().header_bytes + GetParam().token_bytes * 4'321;
  expect_refusal<DataError>("data/token_file", str("token of ", GetParam().name, " too large"),
                            {str(path_.string(), ": at byte ", byte, ": token 4321 is 1000")},
                            [&] { file.read(read, 4'000, 1'000); });
  file.read(read, 4'000, 1'001);
}

TEST_P(TokenFileOf, reading_past_the_end_is_an_error) {
  spit(path_, GetParam().bytes_of(random_tokens(100, 256)));
  const TokenFile file(path_);
  Tokens read(11);
  file.read(read, 89, kAny);
  EXPECT_THROW(file.read(read, 90, kAny), DataError);
  EXPECT_THROW(file.read(read, -1 - GetParam().header_bytes, kAny), DataError);
}

TEST_P(TokenFileOf, a_file_truncated_while_open_is_an_error_not_a_signal) {
  spit(path_, GetParam().bytes_of(random_tokens(10'000, 256)));
  const TokenFile file(path_);
  std::filesystem::resize_file(path_, 5'000);
  Tokens read(5'000);
  expect_refusal<DataError>("data/token_file", str("cut while open, ", GetParam().name),
                            {path_.string()}, [&] { file.read(read, 5'000, kAny); });
}

TEST_P(TokenFileOf, every_truncation_is_refused) {
  const auto bytes = GetParam().bytes_of(random_tokens(40, 256));
  spit(path_, bytes);
  for (std::size_t length = bytes.size() - 1; length != std::string::npos; --length) {
    std::filesystem::resize_file(path_, length);
    const bool headerless = GetParam().header_bytes == 0 || length == 2;
    if (headerless && length > 0 && length % 2 == 0) continue;  // cannot be told
    const auto message = message_of<DataError>([&] { TokenFile file(path_); });
    expect_contains(message, path_.string() + ": at byte ");
    if (length == 0) expect_wording("data/token_file", "empty", message);
    if (length == 5) expect_wording("data/token_file", str("truncated ", GetParam().name), message);
  }
}

TEST_P(TokenFileOf, bytes_after_the_tokens_are_an_error) {
  const auto bytes = GetParam().bytes_of(random_tokens(40, 256));
  for (const std::size_t more : {1, 2, 4, 1024}) {
    if (GetParam().header_bytes == 0 && more > 1) continue;  // cannot be told
    spit(path_, bytes + std::string(more, 'x'));
    const auto text = message_of<DataError>([&] { TokenFile file(path_); });
    expect_contains(text, str("at byte ", bytes.size(), ": "));
    if (more == 1) expect_wording("data/token_file", str(GetParam().name, " and a byte"), text);
  }
}

INSTANTIATE_TEST_SUITE_P(formats, TokenFileOf,
                         ::testing::Values(Format{"llm.c GPT-2", 50257, 1024, 2},
                                           Format{"llm.c Llama 3", 128256, 1024, 4},
                                           Format{"nanoGPT", 50257, 0, 2}),
                         [](const auto& p) { return str("f", p.index); });

TEST_F(TokenFileTest, a_damaged_header_is_refused_by_its_field) {
  const auto tokens = body(random_tokens(50, 256), 2);
  expect_refused("magic", header(20240521, 1, 50) + tokens, {"at byte 0: ", "20240521"});
  expect_refused("magic 0", header(0, 0, 0) + tokens, {"at byte 0: ", " 0"});
  expect_refused("version", header(20240520, 2, 50) + tokens, {"at byte 4: ", " 2", " 1"});
  expect_refused("version of u32", header(20240801, 1, 50) + tokens, {"at byte 4: ", " 1", " 7"});
  expect_refused("no tokens", header(20240520, 1, 0), {"at byte 8: ", " 0 "});
  expect_refused("negative tokens", header(20240520, 1, -50) + tokens, {"at byte 8: ", " -50 "});
  expect_refused("many tokens", header(20240520, 1, 2147483647) + tokens, {" 2147483647 "});
  expect_refused("tokens of half the width", header(20240801, 7, 50) + tokens, {" 1124"});
}

TEST_F(TokenFileTest, errors_name_the_format_of_other_files) {
  const std::string rest(2'000, 'r');
  expect_refused("Megatron index", "MMIDIDX" + rest, {"Megatron"});
  expect_refused("llm.c model", header(20240326, 3, 1024) + rest, {"llm.c"});
  expect_refused("zip archive", "PK\3\4" + rest, {"zip"});
  write("1984.txt", "It was a bright cold day in April");
  for (const std::string name : {"1984.txt", "", "none.bin"})
    expect_refusal<DataError>("data/token_file", str("file \"", name, '"'), {at(name)},
                              [&] { TokenFile file(at(name)); });
}

TEST_F(TokenFileTest, llmq_shards_of_all_writers_are_read) {
  const auto tokens = random_tokens(50, 150'000);
  const auto bits = mask_bits(random_mask(50));
  const std::int32_t stars = 0x2a2a2a2a;  // of writers that knew no masks
  for (const auto& [version, masks] :
       std::vector<std::pair<std::int32_t, std::int32_t>>{{1, stars}, {2, stars}, {2, 0}, {2, 1}}) {
    spit(path_,
         llmq_header(version, 50, 151'643, masks) + body(tokens, 4) + (masks == 1 ? bits : ""));
    const TokenFile file(path_);
    EXPECT_EQ(file.format().name, "LLMQ");
    EXPECT_EQ(file.mask_offset(), masks == 1 ? 1024 + 200 : 0);
    Tokens read(50);
    file.read(read, 0, kAny);
    EXPECT_EQ(read, tokens);
  }
  const auto text = body(tokens, 4);
  expect_refused("LLMQ, version", llmq_header(3, 50, 9, 0) + text, {"at byte 8: ", " 3"});
  expect_refused("LLMQ, no tokens", llmq_header(2, 0, 9, 0), {"at byte 16: ", " 0 "});
  expect_refused("LLMQ, no mask", llmq_header(2, 50, 9, 1) + text, {"at byte 1224: "});
  expect_refused("LLMQ, mask behind", llmq_header(2, 50, 9, 0) + text + bits, {"at byte 1224: "});
  expect_refused("LLMQ, cut", llmq_header(2, 50, 9, 0).substr(0, 1000), {"at byte 1000: "});
}

// Of Megatron's types; what a type cannot mean as an id is refused with the value it has.
TEST_F(TokenFileTest, tokens_of_other_types_are_widened_or_an_error) {
  for (const auto& [bytes, is_signed, most] :
       std::vector<std::tuple<int, bool, std::int32_t>>{{1, false, 255},
                                                        {1, true, 127},
                                                        {2, true, 32767},
                                                        {2, false, 65535},
                                                        {4, true, 2147483647},
                                                        {8, true, 2147483647}}) {
    SCOPED_TRACE(str(bytes, is_signed));
    const TokenFormat format{"Megatron", 0, bytes, 0, Boundary::listed, -1, is_signed};
    auto tokens = random_tokens(5'000, most);
    tokens[77] = most;
    spit(path_, body(tokens, bytes));
    const TokenFile file(ReadFile(path_), format);
    ASSERT_EQ(file.tokens(), 5'000);
    for (const std::int64_t first : {0, 1, 77, 4'000}) {
      Tokens read(std::min<std::size_t>(4'500, static_cast<std::size_t>(5'000 - first)));
      file.read(read, first, std::int64_t{1} << 31);
      ASSERT_EQ(read, slice(tokens, first, std::ssize(read))) << first;
    }
  }
  const struct {
    const char* name;
    std::string value;
    bool is_signed;
    std::string pin;
  } refused[] = {
      {"negative i8", "\x80", true, "at byte 3: token 3 is -128"},
      {"negative i16", "\xfe\xff", true, "token 3 is -2"},
      {"negative i32", "\xff\xff\xff\xff", true, "token 3 is -1"},
      {"large i64", std::string("\0\0\0\0\1\0\0\0", 8), true, "token 3 is 4294967296"},
      {"negative i64", std::string(8, '\xff'), true, "at byte 24: token 3 is -1"},
      // Ids that are negative as int32 must not slip under the vocabulary.
      {"highest bit of u32", "\xfe\xff\xff\xff", false, "token 3 is 4294967294"},
  };
  for (const auto& [name, value, is_signed, pin] : refused) {
    const auto bytes = static_cast<int>(value.size());
    spit(path_, body(random_tokens(3, 100), bytes) + value);
    const TokenFile file(ReadFile(path_),
                         {"Megatron", 0, bytes, 0, Boundary::listed, -1, is_signed});
    Tokens read(4);
    expect_refusal<DataError>("data/token_file", name, {pin},
                              [&] { file.read(read, 0, std::int64_t{1} << 31); });
  }
}

// A sparse file of 6 GB: each offset beyond 2^32.
TEST_F(TokenFileTest, offsets_are_64_bits) {
  const std::int64_t count = 3'000'000'000;
  const Tokens tokens = random_tokens(100, 50257);
  spit(path_, std::string(1024, 'x'));
  std::filesystem::resize_file(path_, static_cast<std::uintmax_t>(2 * count - 200));
  std::ofstream(path_, std::ios::binary | std::ios::app) << body(tokens, 2);
  const TokenFile file(path_);
  ASSERT_EQ(file.tokens(), count);
  Tokens read(100);
  file.read(read, count - 100, 50257);
  EXPECT_EQ(read, tokens);
  expect_contains(message_of<DataError>([&] { file.read(read, count - 100, 1); }),
                  "at byte 5999999");
}

}  // namespace lockstep::testing::token_file_test
