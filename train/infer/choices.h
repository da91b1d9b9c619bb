// Choices: multiple-choice questions. A model scores the likelihood of each answer. A line of the
// file is one JSON object:
//   {"context": "The sky is", "choices": ["blue", "green"], "label": 0, "id": "7"}
//   {"choice_contexts": ["A cup of tea", "A cup of rock"], "choices": ["is hot", "is hot"], ...}
// The model reads a context and then the choice, without a separator, so one of them must hold the
// space between them. choice_contexts: one context per choice, in place of "context". "id" is
// optional.
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
  std::int64_t line = 0;              // line in the file, from 1 on
  std::string id;                     // default: number of the question, from 0 on
  std::vector<std::string> contexts;  // one, or one for each choice
  std::vector<std::string> choices;
  std::size_t label = 0;

  const std::string& context(std::size_t choice) const {
    return contexts[contexts.size() == 1 ? 0 : choice];
  }
};

// Parse questions. Throw DataError "WHAT: line N: ..." naming a wrong member. Blank lines are
// skipped. `odd` counts accepted irregularities, see mended_json_lines().
std::vector<Question> parse_questions(std::string_view text, const std::string& what,
                                      InputDefects& odd);
std::vector<Question> read_questions(const std::filesystem::path& file, InputDefects& odd);

// EncodedChoice: tokens of a context and a choice, as lm_eval 0.4.13 makes them
// (TemplateLM._encode_pair). Whitespace at the context's end moves to the choice. Both are encoded
// together, and the choice starts after as many tokens as the context alone has. The document token
// precedes them once, even if the text begins with it.
struct EncodedChoice {
  std::vector<std::int32_t> context, choice;
};
class ChoiceEncoder {
 public:
  // document_start: the tokenizer's prefix_token precedes every context; false: only empty ones.
  ChoiceEncoder(const Tokenizer& tokenizer, bool document_start)
      : tokenizer_(tokenizer), document_start_(document_start) {}

  // An empty context becomes the document token. The result's `choice` is empty if it adds no
  // token. Bytes without a token are dropped, as in transformers. Throws DataError if the document
  // token is needed and does not exist.
  EncodedChoice encode(std::string_view context, std::string_view choice);
  std::int64_t dropped() const { return memory_.missing; }  // bytes that the last encode() dropped

 private:
  const Tokenizer& tokenizer_;
  bool document_start_;
  Tokenizer::Memory memory_{MissingBytes::drop};
};

// Score of a choice: its log p, and the lengths by which it may be normalised.
struct ChoiceScore {
  double logp = 0;  // nats
  std::int64_t tokens = 0, characters = 0, bytes = 0;
};

// ChoiceTexts: the texts to score for questions, and the continuation of each choice.
class ChoiceTexts {
 public:
  // If a context and a choice together exceed `positions`, the beginning of the context is cut, as
  // in lm_eval. A question is skipped if one of its choices adds no token or is too long by itself.
  ChoiceTexts(std::span<const Question> questions, const std::string& file, ChoiceEncoder& encoder,
              std::int64_t positions, InputDefects& odd);

  std::span<const ScoredText> texts() const { return texts_; }
  std::int64_t cut() const { return cut_; }  // number of questions with a cut context
  // Reason why a question cannot be scored, by question; empty if it can.
  const std::vector<std::string>& skipped() const { return skipped_; }

  // Scores by question and choice, from log p by text and continuation. A skipped question has
  // none.
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

// Returns the choice with the largest normalised log p; of equal ones the first.
enum class Normalised : std::uint8_t { none, by_characters, by_bytes, by_tokens };
std::size_t best_choice(std::span<const ChoiceScore> scores, Normalised by);

struct Share {
  double mean = 0;
  double standard_error = 0;  // sqrt(p (1 - p) / (n - 1)); NaN for one question
};
Share share_correct(std::span<const Question> questions,
                    const std::vector<std::vector<ChoiceScore>>& scores, Normalised by);

}  // namespace lockstep
