// EvaluateChoices computes the accuracy of a model on multiple-choice questions.
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
  std::int64_t most_questions = 0;  // number of questions, from the first on; 0: all
  std::int64_t batch = 0;  // largest number of texts of a pass, on a rank; 0: as many as fit
};

struct ChoicesEvaluation {
  struct Skipped {
    Question question;
    std::string why;  // reason why it cannot be scored
  };
  std::vector<Question> questions;               // scored questions
  std::vector<std::vector<ChoiceScore>> scores;  // by question and choice
  std::int64_t cut = 0;                          // number of questions with a cut context
  std::vector<Skipped> skipped;
  double seconds = 0;
};

// The ranks divide the questions, and each gets the whole result. Warns about irregular input and
// skipped questions. Throws DataError naming a line that cannot be read, the file if no question
// can be scored, or the model if a score is not finite.
ChoicesEvaluation evaluate_choices(const ModelSource& source, const ChoicesRequest& request,
                                   const ModelRanks& ranks, Stream& stream);

}  // namespace lockstep
