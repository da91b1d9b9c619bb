#include "train/infer/conversation.h"

#include <algorithm>
#include <utility>

namespace lockstep {

Conversation::Conversation(const Tokenizer& tokenizer, ChatTemplate chat_template,
                           const std::string& system, std::int64_t positions)
    : tokenizer_(tokenizer),
      template_(std::move(chat_template)),
      positions_(positions),
      stops_(stops_of_answer()),
      memory_(MissingBytes::drop) {
  template_.check(tokenizer);
  role("user");
  if (const auto document = tokenizer.about().document_token; document >= 0)
    start_.push_back(document);
  if (!system.empty()) append_message(start_, "system", system);
  if (length() >= positions)
    throw UsageError(str("--system: the message has ", length(), " tokens, but the context has ",
                         positions, "; shorten the message"));
}

const ChatTemplate::Role& Conversation::role(const char* name) const {
  const auto found = template_.roles.find(name);
  if (found == template_.roles.end())
    throw UsageError(str("the chat template ", template_.name, " has no role \"", name, "\""));
  return found->second;
}

Stops Conversation::stops_of_answer() const {
  const auto& suffix = role(kAssistant).suffix;
  if (suffix.empty()) return {tokenizer_, {}};
  for (const auto id : tokenizer_.encode(suffix))
    if (tokenizer_.is_special(id)) return {tokenizer_, {std::string(tokenizer_.bytes_of(id))}};
  return {tokenizer_, {suffix}};
}

void Conversation::append(Ids& turn, std::string_view text, bool trusted) {
  encode_part(tokenizer_, text, trusted, turn, memory_);
}

void Conversation::append_message(Ids& turn, const char* name, std::string_view message) {
  append(turn, role(name).prefix, true);
  append(turn, content_of(template_, message), false);
  append(turn, role(name).suffix, true);
}

std::int64_t Conversation::length() const {
  auto length = std::ssize(start_);
  for (const auto& turn : turns_)
    length += std::ssize(turn);
  return length;
}

std::int64_t Conversation::room() const {
  return positions_ - length();
}

std::optional<std::size_t> Conversation::ask(std::string_view message, std::int64_t answer_tokens) {
  Ids turn;
  append_message(turn, "user", message);
  append(turn, role(kAssistant).prefix, true);
  if (std::ssize(start_) + std::ssize(turn) >= positions_) return std::nullopt;
  turns_.push_back(std::move(turn));
  std::size_t dropped = 0;
  for (; room() < std::min(answer_tokens, positions_ / 4) && turns_.size() > 1; ++dropped)
    turns_.pop_front();
  return dropped;
}

std::vector<std::int32_t> Conversation::ids() const {
  auto ids = start_;
  for (const auto& turn : turns_)
    ids.insert(ids.end(), turn.begin(), turn.end());
  return ids;
}

void Conversation::answer(std::span<const std::int32_t> tokens, std::string_view text) {
  auto& turn = turns_.back();
  for (const auto id : tokens) {  // whole tokens of the text; a token may span its end
    const auto bytes = tokenizer_.bytes_of(id);
    if (tokenizer_.is_special(id) || bytes.size() > text.size()) break;
    turn.push_back(id);
    text.remove_prefix(bytes.size());
  }
  append(turn, text, false);
  append(turn, role(kAssistant).suffix, true);
}

}  // namespace lockstep
