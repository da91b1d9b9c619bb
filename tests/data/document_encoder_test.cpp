#include "data/document_encoder.h"

#include <gtest/gtest.h>

#include "data/tokenizer.h"

namespace lockstep::testing {
namespace {

TEST(DocumentEncoder, gives_back_what_a_long_line_needed) {
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

}  // namespace
}  // namespace lockstep::testing
