#include "data/pack/document_encoder.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "data/tokenizer/tokenizer.h"

namespace lockstep::testing::document_encoder_test {

TEST(DocumentEncoder, frees_the_memory_of_a_long_line) {
  const ByteTokenizer tokenizer;
  const DocumentEncoder encoder(tokenizer, {}, {"file"}, {true});
  auto memory = encoder.memory();
  const auto encode = [&](const std::string& text) {
    const auto line = "{\"" + text + "\": 1, \"text\": \"" + text + "\"}";
    TextBatch batch;
    batch.text.append(line);
    batch.pieces.push_back({.end = line.size(), .first = true, .last = true});
    encoder.encode(batch, memory);
    EXPECT_EQ(batch.narrow.size(), 1 + text.size());
    return memory.ids.capacity();
  };
  constexpr std::size_t kMany = 8 * kBatchBytes;
  EXPECT_GE(encode("a few"), 6u);
  EXPECT_LT(encode(std::string(kMany, 'x')), kMany);
  EXPECT_LT(memory.line.value(0).capacity(), kMany);
  EXPECT_GE(encode("a few"), 6u);
}

// The space that a tokenizer puts in front of a text is in front of the whole, not of each turn.
TEST(DocumentEncoder, turns_have_the_tokens_of_the_joined_text) {
  const auto line = [](const DocumentEncoder& encoder, const std::string& text) {
    auto memory = encoder.memory();
    TextBatch batch;
    batch.text.append(text);
    batch.pieces.push_back({.end = text.size(), .first = true, .last = true});
    encoder.encode(batch, memory);
    return std::vector<std::int32_t>(batch.narrow.begin(), batch.narrow.end());
  };
  for (const char* family : {"llama2", "mistral", "gemma", "llama3"}) {
    const auto tokenizer =
        open_tokenizer(str(LOCKSTEP_TOKENIZERS "/", family),
                       std::string_view(family) == "llama3" ? "<|begin_of_text|>" : "<s>");
    DocumentFields fields;
    fields.prompt = "p";
    fields.response = "r";
    const DocumentEncoder pairs(*tokenizer, fields, {"file"}, {true});
    const auto ids = line(pairs, R"({"p": "The sum:", "r": "four, the end"})");
    EXPECT_EQ(tokenizer->decode(ids), "The sum:four, the end") << family;
    // Behind an empty prompt the response is the front of the document.
    auto expected = tokenizer->encode("the end of it");
    expected.insert(expected.begin(), tokenizer->about().document_token);
    expected.push_back(tokenizer->about().end_token);
    EXPECT_EQ(line(pairs, R"({"p": "", "r": "the end of it"})"), expected) << family;
  }
  // Behind a special token it is as in a text that has the token.
  for (const char* family : {"llama2", "mistral"}) {
    const auto tokenizer = open_tokenizer(str(LOCKSTEP_TOKENIZERS "/", family), "<s>");
    DocumentFields fields;
    fields.messages = "m";
    fields.chat_template = ChatTemplate{
        .name = "test", .roles = {{"user", {"<unk>", ":"}}, {"assistant", {"", "<unk>"}}}};
    const DocumentEncoder chats(*tokenizer, fields, {"file"}, {true});
    auto expected = tokenizer->encode("<unk>two:the end<unk>");
    const auto ids = line(chats, R"({"m": [{"role": "user", "content": "two"},
                                           {"role": "assistant", "content": "the end"}]})");
    EXPECT_EQ(tokenizer->decode(ids, Tokenizer::Specials::named),
              "<s>" + tokenizer->decode(expected, Tokenizer::Specials::named))
        << family;
    const auto two = tokenizer->encode("<unk>two");  // the first turn and its prefix
    EXPECT_TRUE(std::equal(two.begin(), two.end(), ids.begin() + 1)) << family;
  }
}

}  // namespace lockstep::testing::document_encoder_test
