#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "core/utf8.h"
#include "data/tokenizer/unicode.h"

namespace lockstep {
namespace {

std::size_t spaces_at_front(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size() && is_space(text.substr(bytes)))
    bytes += utf8_at(text.substr(bytes)).bytes;
  return bytes;
}

std::size_t spaces_at_end(std::string_view text) {
  const auto all = text.size();
  while (!text.empty() && is_space(last_character(text)))
    text.remove_suffix(last_character(text).size());
  return all - text.size();
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
    if (token->single_word && ((!before.empty() && is_word_character(last_character(before))) ||
                               (!behind.empty() && is_word_character(behind))))
      continue;
    if (token->lstrip) begin -= spaces_at_end(before.substr(done));
    if (token->rstrip) end += spaces_at_front(behind);
    if (begin > done) visit(text.substr(done, begin - done), nullptr);
    visit(text.substr(begin, end - begin), token);
    done = end;
    i = std::max(i, end);
  }
  if (done < text.size()) visit(text.substr(done), nullptr);
}

}  // namespace lockstep
