// Choices: questions with several answers, of which a model is asked how likely it finds each.
// A line of the file is one JSON object:
//   {"context": "The sky is", "choices": ["blue", "green"], "label": 0, "id": "7"}
//   {"choice_contexts": ["A cup of tea", "A cup of rock"], "choices": ["is hot", "is hot"], ...}
// The model reads a context and the choice right behind it, so a space between them stands in one
// of both. choice_contexts: one for each choice, instead of "context". "id" may be left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "train/infer/scorer.h"

namespace lockstep {

struct Question {
  std::int64_t line = 0;              // of the file, from 1 on
  std::string id;                     // its number among the questions, from 0 on, where none is
  std::vector<std::string> contexts;  // one, or one for each choice
  std::vector<std::string> choices;
  std::size_t label = 0;

  const std::string& context(std::size_t choice) const {
    return contexts[contexts.size() == 1 ? 0 : choice];
  }
};

// Throws DataError "WHAT: line N: ..." naming the member that is wrong. Blank lines are left out.
// `odd` counts what is accepted as mended_json_lines() does.
std::vector<Question> parse_questions(std::string_view text, const std::string& what,
                                      OddInput& odd);
std::vector<Question> read_questions(const std::filesystem::path& file, OddInput& odd);

// Context and choice as tokens, as lm_eval 0.4.13 makes them (TemplateLM._encode_pair): whitespace
// at the context's end goes to the choice, both are encoded together, and what is behind as many
// tokens as the context alone has is the choice. The document token stands in front once, also
// where the text begins with it.
struct EncodedChoice {
  std::vector<std::int32_t> context, choice;
};
class ChoiceEncoder {
 public:
  // document_start: the tokenizer's prefix_token stands in front of each context, else of empty
  // ones.
  ChoiceEncoder(const Tokenizer& tokenizer, bool document_start)
      : tokenizer_(tokenizer), document_start_(document_start) {}

  // An empty context is the document token. `choice` is empty where it adds no token. Bytes without
  // a token are dropped, as by transformers. Throws DataError where there is no document token.
  EncodedChoice encode(std::string_view context, std::string_view choice);
  std::int64_t dropped() const { return memory_.missing; }  // bytes, of the last

 private:
  const Tokenizer& tokenizer_;
  bool document_start_;
  Tokenizer::Memory memory_{MissingBytes::drop};
};

// Of a choice: its log p, and by what that may be divided.
struct ChoiceScore {
  double logp = 0;  // nats
  std::int64_t tokens = 0, characters = 0, bytes = 0;
};

// The texts to score for questions, and which of their continuations is which choice.
class ChoiceTexts {
 public:
  // A context that is too long with a choice for a model of `positions` loses its begin, as lm_eval
  // cuts it. A question with a choice that adds no token, or alone is too long, is skipped.
  ChoiceTexts(std::span<const Question> questions, const std::string& file, ChoiceEncoder& encoder,
              std::int64_t positions, OddInput& odd);

  std::span<const ScoredText> texts() const { return texts_; }
  std::int64_t cut() const { return cut_; }  // questions of which a context was
  // Why a question cannot be scored, by question; empty where it can.
  const std::vector<std::string>& skipped() const { return skipped_; }

  // By question and choice, from log p by text and continuation; none of a question skipped.
  std::vector<std::vector<ChoiceScore>> scores(std::span<const Question> questions,
                                               const std::vector<std::vector<double>>& logp) const;

 private:
  struct Place {
    std::size_t text = 0, continuation = 0;
  };
  void add(std::size_t question, const EncodedChoice& encoded, std::int64_t positions);

  std::vector<ScoredText> texts_;
  std::vector<std::vector<Place>> places_;  // by question and choice
  std::vector<std::string> skipped_;
  std::int64_t cut_ = 0;
};

// The first of the largest values of log p divided by one of the lengths.
enum class Normalised : std::uint8_t { none, by_characters, by_bytes, by_tokens };
std::size_t best_choice(std::span<const ChoiceScore> scores, Normalised by);

struct Share {
  double mean = 0;
  double standard_error = 0;  // sqrt(p (1 - p) / (n - 1)); NaN of one question
};
Share share_correct(std::span<const Question> questions,
                    const std::vector<std::vector<ChoiceScore>>& scores, Normalised by);

}  // namespace lockstep
