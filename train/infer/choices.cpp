#include "train/infer/choices.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/file.h"
#include "core/json.h"
#include "core/utf8.h"
#include "data/tokenizer/unicode.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostChoicesBytes = std::int64_t{4} << 30;
constexpr std::size_t kMostChoices = 1000;

// Reads a member; errors start with its name.
template <class Read>
auto member(const Json& line, const char* key, Read&& read) {
  const Json& value = line.at(key);
  return in_context([&] { return read(value); }, key);
}

std::vector<std::string> texts_of(const Json& json) {
  std::vector<std::string> texts;
  for (const Json& text : json.as_array())
    texts.push_back(text.as_string());
  return texts;
}

std::vector<std::string> choices_of(const Json& json) {
  auto choices = texts_of(json);
  if (choices.size() < 2 || choices.size() > kMostChoices)
    throw DataError(str("expected 2 to ", kMostChoices, " texts, found ", choices.size()));
  return choices;
}

std::string id_of(const Json* id, std::size_t number) {
  if (id == nullptr || id->is_null()) return std::to_string(number);
  if (id->is_integer()) return std::to_string(id->as_integer());
  return in_context([&] { return id->as_string(); }, "id");
}

Question question_of(const Json& line, std::size_t number) {
  Question question;
  question.choices = member(line, "choices", choices_of);
  const auto choices = question.choices.size();
  if (line.find("choice_contexts") == nullptr) {
    question.contexts.push_back(
        member(line, "context", [](const Json& context) { return context.as_string(); }));
  } else {
    if (line.find("context") != nullptr)
      throw DataError("expected context or choice_contexts, found both");
    question.contexts = member(line, "choice_contexts", texts_of);
    if (question.contexts.size() != choices)
      throw DataError(str("choice_contexts: expected ", choices,
                          " texts, one for each choice, found ", question.contexts.size()));
  }
  question.label = static_cast<std::size_t>(
      integer_at(line, "label", 0, static_cast<std::int64_t>(choices) - 1));
  question.id = id_of(line.find("id"), number);
  return question;
}

// Same as Python's str.isspace: Unicode's White_Space and four ASCII separators.
bool is_python_space(std::string_view character) {
  const char c = character.front();
  return ('\x1c' <= c && c <= '\x1f') || is_space(character);
}

// Number of bytes of `text` without trailing whitespace.
std::size_t stripped(std::string_view text) {
  auto end = text.size();
  while (end > 0) {
    auto first = end - 1;
    while (first > 0 && is_continuation(text[first]))
      --first;
    const auto last = text.substr(first, end - first);
    if (utf8_at(last).bytes != last.size() || !is_python_space(last)) break;
    end = first;
  }
  return end;
}

std::int64_t characters_of(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

double normaliser(const ChoiceScore& score, Normalised by) {
  switch (by) {
    case Normalised::none: return 1;
    case Normalised::by_characters: return static_cast<double>(score.characters);
    case Normalised::by_bytes: return static_cast<double>(score.bytes);
    case Normalised::by_tokens: return static_cast<double>(score.tokens);
  }
  return 1;
}

// Encodes all choices of a question. `where`: its place in the file, for errors.
std::vector<EncodedChoice> encoded_choices(const Question& question, const std::string& where,
                                           ChoiceEncoder& encoder, InputDefects& odd) {
  std::vector<EncodedChoice> encoded;
  for (std::size_t k = 0; k < question.choices.size(); ++k) {
    in_context([&] { encoded.push_back(encoder.encode(question.context(k), question.choices[k])); },
               where, ": choices: number ", k);
    odd.bytes.note(where, encoder.dropped());
  }
  return encoded;
}

// Reason why a choice cannot be scored; empty if it can. Tokens of an empty choice are whitespace
// of its context.
std::string why_not(std::string_view choice, const EncodedChoice& encoded, std::size_t number,
                    std::int64_t positions) {
  const auto tokens = choice.empty() ? 0 : std::ssize(encoded.choice);
  if (tokens > 0 && tokens <= positions) return {};
  return str("choices: number ", number,
             tokens == 0
                 ? std::string(" adds no token to its context")
                 : str(" has ", tokens, " tokens, but the model has ", positions, " positions"));
}

}  // namespace

std::vector<Question> parse_questions(std::string_view text, const std::string& what,
                                      InputDefects& odd) {
  std::vector<Question> questions;
  for_each_json_line(mended_json_lines(text, what, odd), what,
                     [&](const Json& json, std::int64_t line) {
                       questions.push_back(question_of(json, questions.size()));
                       questions.back().line = line;
                     });
  if (questions.empty()) throw DataError(str(what, ": holds no question"));
  return questions;
}

std::vector<Question> read_questions(const std::filesystem::path& file, InputDefects& odd) {
  return parse_questions(read_text(file, kMostChoicesBytes), file.string(), odd);
}

EncodedChoice ChoiceEncoder::encode(std::string_view context, std::string_view choice) {
  const auto all = std::string(context) + std::string(choice);
  EncodedChoice encoded;
  tokenizer_.encode(std::string_view(all).substr(0, stripped(context)), encoded.context, memory_);
  memory_.missing = 0;  // `all` counts the context's bytes again
  tokenizer_.encode(all, encoded.choice, memory_);
  const auto& about = tokenizer_.about();
  const auto document = about.prefix_token;
  if (encoded.context.empty() || document_start_) {
    if (document < 0)
      throw DataError(str("its context is empty, and the tokenizer ", about.name,
                          " has no token that starts a document"));
    // The text itself may begin with the document token.
    for (auto* ids : {&encoded.context, &encoded.choice})
      if (ids->empty() || ids->front() != document) ids->insert(ids->begin(), document);
  }
  const auto length = std::min(encoded.context.size(), encoded.choice.size());
  encoded.choice.erase(encoded.choice.begin(),
                       encoded.choice.begin() + static_cast<std::ptrdiff_t>(length));
  return encoded;
}

ChoiceTexts::ChoiceTexts(std::span<const Question> questions, const std::string& file,
                         ChoiceEncoder& encoder, std::int64_t positions, InputDefects& odd) {
  places_.resize(questions.size());
  skipped_.resize(questions.size());
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const auto choices =
        encoded_choices(questions[i], str(file, ": line ", questions[i].line), encoder, odd);
    for (std::size_t k = 0; k < choices.size() && skipped_[i].empty(); ++k)
      skipped_[i] = why_not(questions[i].choices[k], choices[k], k, positions);
    if (!skipped_[i].empty()) continue;
    const auto cut = cut_;
    for (const auto& choice : choices)
      add(i, choice, positions);
    cut_ = std::min(cut_, cut + 1);
  }
}

// Choices of a question after the same tokens share a text. If a context is cut, this requires
// choices of equal length.
void ChoiceTexts::add(std::size_t question, const EncodedChoice& encoded, std::int64_t positions) {
  const auto choice = std::ssize(encoded.choice), context = std::ssize(encoded.context);
  const auto kept = std::min(context, positions + 1 - choice);
  if (kept < context) ++cut_;
  const std::vector<std::int32_t> tokens(encoded.context.end() - kept, encoded.context.end());
  auto& places = places_[question];
  for (const Place& other : places) {
    auto& text = texts_[other.text];
    if (text.tokens != tokens) continue;
    places.push_back({other.text, text.continuations.size()});
    text.continuations.push_back(encoded.choice);
    return;
  }
  places.push_back({texts_.size(), 0});
  texts_.push_back({.tokens = tokens, .continuations = {encoded.choice}});
}

std::vector<std::vector<ChoiceScore>> ChoiceTexts::scores(
    std::span<const Question> questions, const std::vector<std::vector<double>>& logp) const {
  std::vector<std::vector<ChoiceScore>> scores(questions.size());
  for (std::size_t i = 0; i < questions.size(); ++i)
    for (std::size_t choice = 0; choice < places_[i].size(); ++choice) {
      const auto [text, continuation] = places_[i][choice];
      const auto& words = questions[i].choices[choice];
      scores[i].push_back({.logp = logp[text][continuation],
                           .tokens = std::ssize(texts_[text].continuations[continuation]),
                           .characters = characters_of(words),
                           .bytes = std::ssize(words)});
    }
  return scores;
}

std::size_t best_choice(std::span<const ChoiceScore> scores, Normalised by) {
  std::size_t best = 0;
  const auto value = [&](std::size_t i) { return scores[i].logp / normaliser(scores[i], by); };
  for (std::size_t i = 1; i < scores.size(); ++i)
    if (value(i) > value(best)) best = i;
  return best;
}

Share share_correct(std::span<const Question> questions,
                    const std::vector<std::vector<ChoiceScore>>& scores, Normalised by) {
  const auto n = static_cast<double>(questions.size());
  double correct = 0;
  for (std::size_t i = 0; i < questions.size(); ++i)
    if (best_choice(scores[i], by) == questions[i].label) ++correct;
  const double p = correct / n;
  return {p, n > 1 ? std::sqrt(p * (1 - p) / (n - 1)) : std::numeric_limits<double>::quiet_NaN()};
}

}  // namespace lockstep
