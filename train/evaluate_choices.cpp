#include "train/evaluate_choices.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/units.h"
#include "dist/agreement.h"
#include "dist/topology_here.h"
#include "train/memory.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTokensOnCpu = 4096, kTokensOnGpu = 16384;  // at once, of a rank
constexpr std::int64_t kMostTexts = 4096;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The questions of a file that all ranks find the same.
std::vector<Question> agreed_questions(const ChoicesRequest& request, World& world) {
  auto questions = read_questions(request.file);
  std::string all;
  for (const Question& question : questions) {
    for (const auto* texts : {&question.contexts, &question.choices})
      for (const auto& text : *texts)
        all += str(text.size(), " ", text);
    all += str(" ", question.label, "\n");
  }
  agree(world, "questions", {{request.file, hash_hex(all)}});
  const auto most = static_cast<std::size_t>(request.most_questions);
  if (most > 0 && most < questions.size()) questions.resize(most);
  return questions;
}

// Says every ten seconds how far it is.
class ScoringProgress {
 public:
  explicit ScoringProgress(std::size_t questions) : questions_(static_cast<double>(questions)) {}
  void operator()(double share) {
    made_progress();
    if (seconds_since(said_) < 10) return;
    said_ = Clock::now();
    const double seconds = seconds_since(begin_);
    log_info("scored ", human_count(share * questions_), " of ", human_count(questions_),
             " questions, ", human_eta(seconds / share * (1 - share)), " to go");
  }

 private:
  double questions_;
  Clock::time_point begin_ = Clock::now(), said_ = begin_;
};

void check_finite(const ModelSource& source, const ChoicesRequest& request,
                  const ChoicesEvaluation& result) {
  for (std::size_t i = 0; i < result.questions.size(); ++i)
    for (std::size_t choice = 0; choice < result.scores[i].size(); ++choice)
      if (const double logp = result.scores[i][choice].logp; !std::isfinite(logp))
        throw DataError(str(source.path.string(), ": log p of choice ", choice, " of line ",
                            result.questions[i].line, " of ", request.file, " is ", logp,
                            "; its weights are not those of a trained model"));
}

}  // namespace

ChoicesEvaluation evaluate_choices(const ModelSource& source, const ChoicesRequest& request,
                                   const ModelRanks& ranks, Stream& stream) {
  const auto begin = Clock::now();
  ChoicesEvaluation result;
  result.questions = agreed_questions(request, ranks.world);
  ChoiceEncoder encoder(request.tokenizer, request.document_start);
  const ChoiceTexts texts(result.questions, request.file, encoder, source.model.max_positions);
  result.cut = texts.cut();
  if (result.cut > 0)
    log_warning(result.cut, " of ", result.questions.size(),
                " questions have a context that is longer than the model's ",
                source.model.max_positions, " positions: only its end is read");

  const ScoreRequest score_request{.texts = texts.texts(),
                                   .tokens_at_once = stream.is_cuda() ? kTokensOnGpu : kTokensOnCpu,
                                   .most_texts = request.batch > 0 ? request.batch : kMostTexts};
  const Inference::Config config{.model = source.model};
  const auto bytes = measure_inference(config, ranks.mesh, stream, [&](Inference& model) {
    score(model, score_request, [](double) {});
  });
  room_here(stream.device(), static_cast<int>(ranks_here(ranks.world).size()))
      .require(
          bytes,
          "evaluate a smaller model, or with a smaller --batch, or share the model among ranks "
          "(--tensor, --shard)");
  Arenas arenas(stream.device(), bytes, ranks.world.allocate(bytes.device));
  Inference inference(config, stream, arenas, ranks.comms());
  load_weights(source, inference.params(), stream);
  ScoringProgress progress(result.questions.size());
  const auto logp = score(inference, score_request, [&](double share) { progress(share); });
  result.scores = texts.scores(result.questions, logp);
  check_finite(source, request, result);
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace lockstep
