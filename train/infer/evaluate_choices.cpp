#include "train/infer/evaluate_choices.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/units.h"
#include "dist/job/rank_consistency.h"
#include "dist/topology_here.h"
#include "train/step/memory.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTokensOnCpu = 4096, kTokensOnGpu = 16384;  // of a pass, on a rank
constexpr std::int64_t kMostTexts = 4096;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Reads the questions, and checks that all ranks read the same ones.
std::vector<Question> agreed_questions(const ChoicesRequest& request, World& world,
                                       InputDefects& odd) {
  auto questions = read_questions(request.file, odd);
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

// Logs the progress every ten seconds.
class ScoringProgress {
 public:
  explicit ScoringProgress(std::size_t questions) : questions_(static_cast<double>(questions)) {}
  void operator()(double share) {
    made_progress();
    if (seconds_since(said_) < 10) return;
    said_ = Clock::now();
    const double seconds = seconds_since(begin_);
    log_info("scored ", human_count(share * questions_), " of ", human_count(questions_),
             " questions, ", human_eta(seconds / share * (1 - share)), " left");
  }

 private:
  double questions_;
  Clock::time_point begin_ = Clock::now(), said_ = begin_;
};

// Moves skipped questions out of the questions and their scores.
void set_apart(const std::vector<std::string>& skipped, ChoicesEvaluation& result) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    if (!skipped[i].empty()) {
      result.skipped.push_back({std::move(result.questions[i]), skipped[i]});
      continue;
    }
    std::swap(result.questions[kept], result.questions[i]);
    std::swap(result.scores[kept++], result.scores[i]);
  }
  result.questions.resize(kept);
  result.scores.resize(kept);
}

void require_any(const ChoicesRequest& request, const std::vector<std::string>& skipped,
                 const std::vector<Question>& questions) {
  if (std::ranges::all_of(skipped, [](const auto& why) { return !why.empty(); }))
    throw DataError(str(request.file, ": no question can be scored; the first, of line ",
                        questions.front().line, ": ", skipped.front()));
}

void warn_of_skipped(const ChoicesRequest& request, const ChoicesEvaluation& result) {
  if (result.skipped.empty()) return;
  const auto& [question, why] = result.skipped.front();
  log_warning(result.skipped.size(), " of ", result.questions.size() + result.skipped.size(),
              " questions cannot be scored and were skipped; the first: ", request.file, ": line ",
              question.line, ": ", why);
}

void check_finite(const ModelSource& source, const ChoicesRequest& request,
                  const ChoicesEvaluation& result) {
  for (std::size_t i = 0; i < result.questions.size(); ++i)
    for (std::size_t choice = 0; choice < result.scores[i].size(); ++choice)
      if (const double logp = result.scores[i][choice].logp; !std::isfinite(logp))
        throw DataError(str(source.path.string(), ": log p of choice ", choice, " of line ",
                            result.questions[i].line, " of ", request.file, " is ", logp,
                            "; the weights are not those of a trained model"));
}

}  // namespace

ChoicesEvaluation evaluate_choices(const ModelSource& source, const ChoicesRequest& request,
                                   const ModelRanks& ranks, Stream& stream) {
  const auto begin = Clock::now();
  ChoicesEvaluation result;
  InputDefects odd;
  result.questions = agreed_questions(request, ranks.world, odd);
  ChoiceEncoder encoder(request.tokenizer, request.document_start);
  const ChoiceTexts texts(result.questions, request.file, encoder, source.model.max_positions, odd);
  require_any(request, texts.skipped(), result.questions);
  result.cut = texts.cut();
  if (result.cut > 0)
    log_warning(result.cut, " of ", result.questions.size(),
                " questions have a context that exceeds the model's ", source.model.max_positions,
                " positions: only the end of the context is read");

  const ScoreRequest score_request{.texts = texts.texts(),
                                   .tokens_at_once = stream.is_cuda() ? kTokensOnGpu : kTokensOnCpu,
                                   .most_texts = request.batch > 0 ? request.batch : kMostTexts};
  const Inference::Config config{.model = source.model};
  const auto bytes =
      measure_inference(config, ranks.mesh, /*rank=*/0, stream,
                        [&](Inference& model) { score(model, score_request, [](double) {}); });
  room_here(stream.device(), static_cast<int>(ranks_here(ranks.world).size()))
      .require(bytes,
               "evaluate a smaller model, use a smaller --batch, or divide the model over ranks "
               "(--tensor, --shard)");
  Arenas arenas(stream.device(), bytes, ranks.world.allocate(bytes.device));
  Inference inference(config, stream, arenas, ranks.comms());
  load_weights(source, inference.params(), stream);
  ScoringProgress progress(result.questions.size());
  const auto logp = score(inference, score_request, [&](double share) { progress(share); });
  result.scores = texts.scores(result.questions, logp);
  set_apart(texts.skipped(), result);
  check_finite(source, request, result);
  warn_of(odd, MissingBytes::drop);
  warn_of_skipped(request, result);
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace lockstep
