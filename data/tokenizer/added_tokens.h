// AddedTokens finds texts that are single tokens wherever they occur, such as "<|endoftext|>",
// before any other processing. It follows `tokenizers` (added_tokens of a tokenizer.json) and also
// has the special tokens of other files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"

namespace lockstep {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;             // only between word boundaries
  bool lstrip = false, rstrip = false;  // it includes the spaces before or after it
  bool normalized = false;              // searched after normalization, else before
  bool special = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(const std::vector<AddedToken>& tokens);

  // Calls visit(part, token) for all parts of valid UTF-8, in order; token is null for other text.
  // At each place the longest token matches.
  void split(std::string_view text,
             FunctionRef<void(std::string_view, const AddedToken*)> visit) const;

 private:
  // Returns the longest token at the start of `text`, or null.
  const AddedToken* longest(std::string_view text) const;

  struct Node {
    std::int32_t token = -1;  // token that ends here; -1: none
    std::vector<std::pair<char, std::int32_t>> next;
  };
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  bool begins_[256] = {};  // true: a token starts with this byte
};

}  // namespace lockstep
