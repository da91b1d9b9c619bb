// EvaluateChoices: how often a model finds the right one of several answers the likeliest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/infer/choices.h"
#include "train/interop/model_source.h"

namespace lockstep {

struct ChoicesRequest {
  std::string file;
  const Tokenizer& tokenizer;
  bool document_start = false;      // see ChoiceEncoder
  std::int64_t most_questions = 0;  // the first so many; 0: all
  std::int64_t batch = 0;           // texts of a rank at once, at most; 0: as many as fit
};

struct ChoicesEvaluation {
  struct Skipped {
    Question question;
    std::string why;  // it cannot be scored
  };
  std::vector<Question> questions;               // those that were scored
  std::vector<std::vector<ChoiceScore>> scores;  // by question and choice
  std::int64_t cut = 0;                          // questions of which a context was too long
  std::vector<Skipped> skipped;
  double seconds = 0;
};

// The ranks divide the questions; each gets the whole result. Warns of what is odd and of questions
// that were skipped. Throws DataError naming the line that cannot be read, the file where no
// question can be scored, or the model whose scores are not finite.
ChoicesEvaluation evaluate_choices(const ModelSource& source, const ChoicesRequest& request,
                                   const ModelRanks& ranks, Stream& stream);

}  // namespace lockstep
