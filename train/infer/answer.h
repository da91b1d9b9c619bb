// Answer: the text that a model generates after one prompt, and why it ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "train/infer/text_stream.h"

namespace lockstep {

// Texts that end an answer, and the special tokens with such a name.
struct Stops {
  Stops(const Tokenizer& tokenizer, std::vector<std::string> texts);

  std::vector<std::string> texts;
  std::vector<std::int32_t> tokens;
};

class Answer {
 public:
  enum class Finish : std::uint8_t { length, end, stop };  // end: a token that ends a text

  // drops_first_space: if the tokenizer puts a space before a text, the answer starts without it.
  Answer(const Tokenizer& tokenizer, const Stops& stops, bool drops_first_space = false);

  // Adds a token. Returns true if the answer continues.
  bool take(std::int32_t token);

  TextStream& text() { return text_; }
  std::int64_t tokens() const { return tokens_; }
  Finish finish() const { return finish_; }  // length, until another reason occurs

 private:
  const Tokenizer* tokenizer_;
  const Stops* stops_;
  bool drops_first_space_;
  TextStream text_;
  std::int64_t tokens_ = 0;
  Finish finish_ = Finish::length;
};

}  // namespace lockstep
