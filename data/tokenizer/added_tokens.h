// AddedTokens: texts that are tokens of their own wherever they stand, "<|endoftext|>", found
// before anything else is done to a text; as `tokenizers` has them (added_tokens of a
// tokenizer.json), and special tokens of other files.
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
  bool single_word = false;             // not within a word
  bool lstrip = false, rstrip = false;  // the spaces before, behind it are its own
  bool normalized = false;              // looked for behind the normalizer, else before
  bool special = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(const std::vector<AddedToken>& tokens);

  // visit(part, nullptr or the token that it is) of all parts of valid UTF-8, in their order. Of
  // several at one place the longest.
  void split(std::string_view text,
             FunctionRef<void(std::string_view, const AddedToken*)> visit) const;

 private:
  // The longest at the front of `text`.
  const AddedToken* longest(std::string_view text) const;

  struct Node {
    std::int32_t token = -1;  // that ends here
    std::vector<std::pair<char, std::int32_t>> next;
  };
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  bool begins_[256] = {};  // some token does with this byte
};

}  // namespace lockstep
