#include "train/infer/conversation.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep::conversation_test {

ChatTemplate plain() {
  return ChatTemplate::parse(R"({"roles": {"system": {"prefix": "S:", "suffix": "\n"},
      "user": {"prefix": "U:", "suffix": "\n"}, "assistant": {"prefix": "A:", "suffix": "##"}}})",
                             "test");
}

std::string text_of(const Conversation& conversation) {
  return ByteTokenizer().decode(conversation.ids(), Tokenizer::Specials::left_out);
}

std::vector<std::int32_t> bytes(std::string_view text) {
  return ByteTokenizer().encode(text);
}

TEST(Conversation, has_the_texts_of_the_template_around_its_messages) {
  const ByteTokenizer tokenizer;
  Conversation conversation(tokenizer, plain(), "brief", 100);
  EXPECT_EQ(conversation.stops().texts, std::vector<std::string>{"##"});
  EXPECT_EQ(conversation.ask("one", 9), 0u);
  EXPECT_EQ(conversation.ids().front(), ByteTokenizer::kDocumentToken);
  EXPECT_EQ(text_of(conversation), "S:brief\nU:one\nA:");
  conversation.answer(bytes("yes##"), "yes");  // tokens of the suffix are not kept twice
  EXPECT_EQ(conversation.ask("two", 9), 0u);
  EXPECT_EQ(text_of(conversation), "S:brief\nU:one\nA:yes##U:two\nA:");
  EXPECT_EQ(conversation.room(), 100 - std::ssize(conversation.ids()));
  conversation.answer(bytes("cut"), "cut");
  conversation.clear();
  EXPECT_EQ(conversation.ask("x", 9), 0u);
  EXPECT_EQ(text_of(conversation), "S:brief\nU:x\nA:");
}

TEST(Conversation, forgets_the_oldest_turns_when_it_is_full) {
  const ByteTokenizer tokenizer;
  Conversation conversation(tokenizer, plain(), "", 40);  // a quarter is kept for the answer
  for (const char* message : {"first", "other"}) {
    EXPECT_EQ(conversation.ask(message, 100), 0u);
    conversation.answer(bytes("a"), "a");
  }
  EXPECT_EQ(conversation.ask("third", 100), 1u);
  EXPECT_EQ(text_of(conversation), "U:other\nA:a##U:third\nA:");
  EXPECT_FALSE(conversation.ask(std::string(40, 'x'), 1).has_value());
  EXPECT_EQ(text_of(conversation), "U:other\nA:a##U:third\nA:");
  EXPECT_THROW(Conversation(tokenizer, plain(), std::string(40, 'x'), 40), UsageError);
}

TEST(Conversation, ends_an_answer_after_a_stop_or_an_end_token) {
  const ByteTokenizer tokenizer;
  const Stops stops(tokenizer, {"##"});
  Answer answer(tokenizer, stops);
  for (const auto token : bytes("yes#"))
    EXPECT_TRUE(answer.take(token));
  EXPECT_EQ(answer.text().settled(), "yes");
  EXPECT_FALSE(answer.take('#'));
  EXPECT_EQ(answer.text().text(), "yes");
  EXPECT_EQ(answer.finish(), Answer::Finish::stop);
  Answer ended(tokenizer, stops);
  EXPECT_FALSE(ended.take(ByteTokenizer::kDocumentToken));
  EXPECT_EQ(ended.finish(), Answer::Finish::end);
}

}  // namespace lockstep::conversation_test
