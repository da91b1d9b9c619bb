// Conversation holds the tokens of a chat in the form of a chat template. It drops the oldest turns
// that the context cannot hold. Messages have the tokens that `data pack --messages-field` gives
// them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "train/infer/answer.h"

namespace lockstep {

class Conversation {
 public:
  // system: first message; empty: none. Throws UsageError if the system message fills all
  // `positions`, or if the template has no role for a message.
  Conversation(const Tokenizer& tokenizer, ChatTemplate chat_template, const std::string& system,
               std::int64_t positions);

  // Texts and tokens that end an answer: the first special token of the template's suffix, or the
  // whole suffix.
  const Stops& stops() const { return stops_; }

  // Adds a message of the user, up to the start of its answer. Drops the oldest turns until
  // `answer_tokens`, or a quarter of the positions if that is less, are left for the answer.
  // Returns the number of dropped turns. nullopt: the message alone is too long, nothing changed.
  std::optional<std::size_t> ask(std::string_view message, std::int64_t answer_tokens);
  std::vector<std::int32_t> ids() const;
  std::int64_t room() const;  // positions that are left

  // Adds the generated tokens, of which the answer has the part whose text is `text`, and the
  // suffix of the template.
  void answer(std::span<const std::int32_t> tokens, std::string_view text);

  void clear() { turns_.clear(); }  // keeps the system message

 private:
  using Ids = std::vector<std::int32_t>;
  const ChatTemplate::Role& role(const char* name) const;
  void append(Ids& turn, std::string_view text, bool trusted);
  void append_message(Ids& turn, const char* name, std::string_view message);
  Stops stops_of_answer() const;
  std::int64_t length() const;

  const Tokenizer& tokenizer_;
  ChatTemplate template_;
  std::int64_t positions_;
  Stops stops_;
  Tokenizer::Memory memory_;
  Ids start_;              // document token and system message
  std::deque<Ids> turns_;  // a message and its answer each
};

}  // namespace lockstep
