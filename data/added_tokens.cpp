#include "data/added_tokens.h"

#include <algorithm>
#include <utf8proc.h>

#include "data/unicode.h"

namespace lockstep {
namespace {

std::int32_t code_at(std::string_view text) {
  utf8proc_int32_t code = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &code);
  return code;
}

// The bytes of the last character.
std::size_t last_bytes(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() &&
         (static_cast<unsigned char>(text[text.size() - bytes]) & 0xc0) == 0x80)
    ++bytes;
  return bytes;
}

// Unicode's \w: letters, marks, numbers of decimal digits, connecting punctuation.
bool is_word(std::int32_t code) {
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return code == 0x200c || code == 0x200d;
  }
}

bool is_space(std::int32_t code) {
  return (9 <= code && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (0x2000 <= code && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

std::size_t spaces_at_front(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size() && is_space(code_at(text.substr(bytes))))
    bytes += utf8_at(text.substr(bytes)).bytes;
  return bytes;
}

std::size_t spaces_at_end(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const auto rest = text.substr(0, text.size() - bytes);
    const auto last = last_bytes(rest);
    if (!is_space(code_at(rest.substr(rest.size() - last)))) break;
    bytes += last;
  }
  return bytes;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) : tokens_(tokens), nodes_(1) {
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    if (tokens_[t].content.empty()) continue;
    begins_[static_cast<unsigned char>(tokens_[t].content.front())] = true;
    std::size_t node = 0;
    for (const char c : tokens_[t].content) {
      auto& next = nodes_[node].next;
      const auto found =
          std::find_if(next.begin(), next.end(), [c](const auto& edge) { return edge.first == c; });
      if (found != next.end()) {
        node = static_cast<std::size_t>(found->second);
        continue;
      }
      next.emplace_back(c, static_cast<std::int32_t>(nodes_.size()));
      node = nodes_.size();
      nodes_.emplace_back();
    }
    nodes_[node].token = static_cast<std::int32_t>(t);
  }
}

const AddedToken* AddedTokens::longest(std::string_view text) const {
  const AddedToken* found = nullptr;
  std::size_t node = 0;
  for (const char c : text) {
    const auto& next = nodes_[node].next;
    const auto edge =
        std::find_if(next.begin(), next.end(), [c](const auto& one) { return one.first == c; });
    if (edge == next.end()) break;
    node = static_cast<std::size_t>(edge->second);
    if (nodes_[node].token >= 0) found = &tokens_[static_cast<std::size_t>(nodes_[node].token)];
  }
  return found;
}

void AddedTokens::split(std::string_view text,
                        FunctionRef<void(std::string_view, const AddedToken*)> visit) const {
  std::size_t done = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (!begins_[static_cast<unsigned char>(text[i])]) {
      ++i;
      continue;
    }
    const auto* token = longest(text.substr(i));
    if (token == nullptr) {
      ++i;
      continue;
    }
    std::size_t begin = i, end = i + token->content.size();
    i = end;
    const auto before = text.substr(0, begin), behind = text.substr(end);
    if (token->single_word &&
        ((!before.empty() && is_word(code_at(before.substr(before.size() - last_bytes(before))))) ||
         (!behind.empty() && is_word(code_at(behind)))))
      continue;
    if (token->lstrip) begin = std::max(done, begin - spaces_at_end(before));
    if (token->rstrip) end += spaces_at_front(behind);
    begin = std::max(begin, done);
    if (begin > done) visit(text.substr(done, begin - done), nullptr);
    visit(text.substr(begin, end - begin), token);
    done = end;
    i = std::max(i, end);
  }
  if (done < text.size()) visit(text.substr(done), nullptr);
}

}  // namespace lockstep
