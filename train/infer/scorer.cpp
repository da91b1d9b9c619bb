#include "train/infer/scorer.h"

#include <algorithm>
#include <numeric>

#include "core/mirror.h"
#include "dist/topology/holders.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

// Round: the texts of one pass through the model on all ranks, `rows` on each rank. Some rows may
// be missing in the last round.
struct Round {
  std::span<const std::size_t> texts;  // indices, the longest first
  std::int64_t rows = 0;
};

// Extent: the sizes that determine the shapes of a round.
struct Extent {
  std::int64_t capacity = 0;          // positions of the cache
  std::int64_t front = 0;             // tokens before the last token of a text
  std::vector<std::int64_t> longest;  // longest continuation of each turn
};

Extent extent_of(const Round& round, std::span<const ScoredText> texts) {
  Extent extent;
  for (const auto i : round.texts) {
    const auto& text = texts[i];
    extent.capacity = std::max(extent.capacity, text.positions());
    extent.front = std::max(extent.front, std::ssize(text.tokens) - 1);
    extent.longest.resize(std::max(extent.longest.size(), text.continuations.size()));
    for (std::size_t turn = 0; turn < text.continuations.size(); ++turn)
      extent.longest[turn] = std::max(extent.longest[turn], std::ssize(text.continuations[turn]));
  }
  return extent;
}

// TextRows runs a round through the model, on this rank.
class TextRows {
 public:
  TextRows(Inference& model, const ScoreRequest& request, const Round& round)
      : model_(model),
        texts_(request.texts),
        round_(round),
        extent_(extent_of(round, request.texts)),
        piece_(std::clamp<std::int64_t>(request.tokens_at_once / round.rows, 1,
                                        std::max<std::int64_t>(extent_.front, 1))),
        cache_(
            model.transformer().allocate_cache(scratch(), stream(), round.rows, extent_.capacity)) {
    const auto longest = *std::max_element(extent_.longest.begin(), extent_.longest.end());
    const auto most = round.rows * std::max(piece_, longest);
    inputs_ = mirror("score_inputs", DType::int32, {most});
    positions_ = mirror("score_positions", DType::int32, {most});
    targets_ = mirror("score_targets", DType::int32, {most});
    losses_ = mirror("score_losses", DType::fp32, {model.place().ranks, round.rows * longest});
  }

  void run(std::vector<std::vector<double>>& scores) {
    for (std::int64_t first = 0; first < extent_.front; first += piece_)
      prefill(first, std::min(piece_, extent_.front - first));
    for (std::size_t turn = 0; turn < extent_.longest.size(); ++turn)
      take(turn, scores);
  }

 private:
  Stream& stream() { return model_.compute(); }
  Arena& scratch() { return model_.arenas().device; }
  Mirror mirror(const char* name, DType dtype, const Shape& shape) {
    return {name, scratch().allocate(name, dtype, shape), model_.arenas().pinned};
  }

  // Text in a row of data rank `rank`; nullptr: there are no more texts.
  const ScoredText* text(std::int64_t rank, std::int64_t row) const {
    const auto i = static_cast<std::size_t>(rank * round_.rows + row);
    return i < round_.texts.size() ? &texts_[round_.texts[i]] : nullptr;
  }

  // Sends n tokens a row to the device: token(text, position) and target(text, position) from
  // position start(text) on. The host's buffers are free, because each pass is waited for.
  StepContext send(std::int64_t n, FunctionRef<std::int64_t(const ScoredText*)> start,
                   FunctionRef<std::int32_t(const ScoredText*, std::int64_t)> token,
                   FunctionRef<std::int32_t(const ScoredText*, std::int64_t)> target) {
    const auto B = round_.rows;
    for (std::int64_t row = 0; row < B && !stream().is_measuring(); ++row) {
      const ScoredText* const one = text(model_.place().rank, row);
      const auto first = start(one);
      for (std::int64_t i = 0; i < n; ++i) {
        inputs_.host().as<std::int32_t>()[row * n + i] = token(one, first + i);
        targets_.host().as<std::int32_t>()[row * n + i] = target(one, first + i);
        positions_.host().as<std::int32_t>()[row * n + i] = static_cast<std::int32_t>(first + i);
      }
    }
    for (const Mirror* m : {&inputs_, &targets_, &positions_})
      m->send(stream());
    StepContext step = model_.context();
    Tensor positions = positions_.device();
    positions.shape = {B, n};
    step.positions = positions;
    return step;
  }

  // BatchRows whose text has ended get padding tokens, which continuations overwrite.
  void prefill(std::int64_t first, std::int64_t n) {
    const auto step = send(
        n, [&](auto*) { return first; },
        [](auto* text, auto at) {
          return text != nullptr && at < std::ssize(text->tokens)
                     ? text->tokens[static_cast<std::size_t>(at)]
                     : 0;
        },
        [](auto*, auto) { return -1; });
    model_.transformer().prefill(step, inputs_.device().rows(0, round_.rows * n), cache_);
    stream().synchronize();
  }

  // Passes the last token of each text and its continuation without the last token. If that would
  // exceed the cache, because another row is longer, the row starts earlier and computes some
  // tokens again.
  void take(std::size_t turn, std::vector<std::vector<double>>& scores) {
    const auto n = extent_.longest[turn], B = round_.rows;
    // Index of a position in the continuation; negative: the position is in the text.
    const auto place = [](const ScoredText* text, std::int64_t at) {
      return at - (text == nullptr ? 1 : std::ssize(text->tokens));
    };
    const auto continuation = [&](const ScoredText* text) -> std::span<const std::int32_t> {
      if (text == nullptr || turn >= text->continuations.size()) return {};
      return text->continuations[turn];
    };
    const auto at = [](std::span<const std::int32_t> tokens, std::int64_t i, std::int32_t none) {
      return 0 <= i && i < std::ssize(tokens) ? tokens[static_cast<std::size_t>(i)] : none;
    };
    const auto start = [&](const ScoredText* text) {
      return std::min(text == nullptr ? 0 : std::ssize(text->tokens) - 1, extent_.capacity - n);
    };
    const auto step = send(
        n, start,
        [&](auto* text, auto position) {
          const auto i = place(text, position);
          if (i >= 0) return at(continuation(text), i, 0);
          return text == nullptr ? 0 : at(text->tokens, position, 0);
        },
        [&](auto* text, auto position) {
          return at(continuation(text), place(text, position) + 1, -1);
        });
    Tensor all = losses_.device();
    all.shape = {model_.place().ranks, B * n};
    fill(stream(), all, 0.0f);
    const Tensor mine = all.rows(model_.place().rank, 1).view({B * n});
    model_.transformer().score(step, mine, inputs_.device().rows(0, B * n),
                               targets_.device().rows(0, B * n), cache_);
    const Comms& comms = model_.comms();
    if (!counts_tokens(comms.mesh, comms.world->rank())) fill(stream(), mine, 0.0f);
    model_.comms().all->all_reduce(all, ReduceOp::sum, stream());
    losses_.fetch(stream());
    stream().synchronize();
    if (stream().is_measuring()) return;
    const auto* losses = losses_.host().as<float>();
    for (std::size_t k = 0; k < round_.texts.size(); ++k) {
      const auto i = round_.texts[k];
      if (turn >= texts_[i].continuations.size()) continue;
      const auto* row = losses + static_cast<std::int64_t>(k) * n;
      scores[i][turn] = -std::accumulate(row, row + n, 0.0);
    }
  }

  Inference& model_;
  std::span<const ScoredText> texts_;
  Round round_;
  Extent extent_;
  std::int64_t piece_;  // tokens of a row in one prefill pass
  Transformer::Cache cache_;
  Mirror inputs_, positions_, targets_, losses_;
};

}  // namespace

std::int64_t ScoredText::longest() const {
  std::int64_t most = 0;
  for (const auto& one : continuations)
    most = std::max(most, std::ssize(one));
  return most;
}

std::int64_t ScoredText::positions() const {
  return std::ssize(tokens) + longest() - 1;
}

std::vector<std::vector<double>> score(Inference& model, const ScoreRequest& request,
                                       FunctionRef<void(double share)> progress) {
  const auto texts = request.texts;
  std::vector<std::vector<double>> scores(texts.size());
  std::vector<std::size_t> order(texts.size());
  double all = 0, done = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    LOCKSTEP_CHECK(!texts[i].tokens.empty() && !texts[i].continuations.empty(), "nothing to score");
    scores[i].resize(texts[i].continuations.size());
    order[i] = i;
  }
  // Texts of similar length together, for little padding; the largest memory need first.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return texts[a].positions() > texts[b].positions();
  });
  const auto cost = [&](std::size_t i) {
    return static_cast<double>(std::ssize(texts[i].tokens) +
                               std::ssize(texts[i].continuations) * texts[i].longest());
  };
  for (const auto i : order)
    all += cost(i);
  for (std::size_t first = 0; first < order.size();) {
    const auto ranks = model.place().ranks;
    const auto left = std::ssize(order) - static_cast<std::int64_t>(first);
    auto rows = std::clamp<std::int64_t>(request.tokens_at_once / texts[order[first]].positions(),
                                         1, std::max<std::int64_t>(request.most_texts, 1));
    rows = std::min(rows, divide_up(left, std::int64_t{ranks}));
    const auto count = static_cast<std::size_t>(std::min(rows * ranks, left));
    const Arena::Scope scope(model.arenas().device), pinned(model.arenas().pinned);
    const auto these = std::span(order).subspan(first, count);
    TextRows(model, request, {.texts = these, .rows = rows}).run(scores);
    first += count;
    for (const auto i : these)
      done += cost(i);
    progress(done / all);
  }
  return scores;
}

}  // namespace lockstep
