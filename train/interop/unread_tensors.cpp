#include "train/interop/unread_tensors.h"

#include <algorithm>
#include <cmath>

#include "kernels/rope.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPiece = 65536;  // elements compared at a time

// Difference counts the elements in which two tensors differ.
class Difference {
 public:
  void compare(const FoundTensor& a, const FoundTensor& b, std::int64_t first, std::int64_t count) {
    for (std::int64_t done = 0; done < count; done += kPiece) {
      const auto now = static_cast<std::size_t>(std::min(kPiece, count - done));
      a_.resize(now);
      b_.resize(now);
      a.file->read(*a.stored, first + done, std::span(a_));
      b.file->read(*b.stored, first + done, std::span(b_));
      for (std::size_t i = 0; i < now; ++i)
        add(a_[i], b_[i]);
    }
  }
  bool empty() const { return elements_ == 0; }
  std::string text() const {
    return str(elements_, " of ", compared_, " compared elements, by up to ", largest_);
  }

 private:
  void add(double a, double b) {
    ++compared_;
    if (a == b || (std::isnan(a) && std::isnan(b))) return;
    ++elements_;
    largest_ = std::max(largest_, std::abs(a - b));
  }

  std::vector<double> a_, b_;
  std::int64_t compared_ = 0, elements_ = 0;
  double largest_ = 0;
};

void check_tied_head(const WeightFiles& files, const ModelConfig& config,
                     const SlicesByName& parts) {
  const FoundTensor* head = files.tied_head();
  if (head == nullptr) return;
  const auto embedding = huggingface_tensors(config).front();
  const auto& expected = files[embedding];
  require_shape(*head, embedding.shape);
  Difference difference;
  for (const auto* slice : parts.of(embedding.name))
    visit_runs(*slice, [&](std::int64_t whole, std::int64_t count, std::int64_t) {
      difference.compare(*head, expected, whole, count);
    });
  if (difference.empty()) return;
  head->fail(str("differs from ", expected.stored->name, " in ", difference.text(),
                 ", though config.json ties them: \"tie_word_embeddings\" is true, or absent. Set "
                 "it to false to use this head, or remove the tensor to use the embedding"));
}

constexpr char kRemoveMask[] = "Remove the tensor if every token attends to all earlier tokens";

// Reads one row at a time.
void check_causal_mask(const FoundTensor& mask) {
  const auto& shape = mask.stored->shape;
  const auto n = shape.empty() ? 0 : shape.back();
  const bool is_square =
      shape.size() >= 2 && shape[shape.size() - 2] == n && mask.stored->elements() == n * n;
  if (!is_square)
    mask.fail_shape(str("one square matrix, the mask of causal attention. ", kRemoveMask));
  std::vector<double> row(static_cast<std::size_t>(n));
  for (std::int64_t query = 0; query < n; ++query) {
    mask.file->read(*mask.stored, query * n, std::span(row));
    for (std::int64_t key = 0; key < n; ++key)
      if (const double found = row[static_cast<std::size_t>(key)], expected = key <= query ? 1 : 0;
          found != expected)
        mask.fail(
            str("is ", found, " for query ", query, " and key ", key, "; expected ", expected,
                " in a causal mask. Only causal attention is supported. Choose a causal model"));
  }
}

// A masked score must vanish in an fp32 softmax. transformers writes -10000, which bf16 rounds.
void check_masked_score(const FoundTensor& score) {
  constexpr double kMost = -1000;
  double found = 0;
  if (score.stored->elements() != 1) score.fail_shape(str("one element. ", kRemoveMask));
  score.file->read(*score.stored, 0, std::span(&found, 1));
  if (!(found <= kMost))
    score.fail(str("is ", found, "; expected at most ", kMost, ", which leaves out masked keys. ",
                   kRemoveMask));
}

// Files hold frequencies rounded to the type of the saved model: at worst to bf16's 8 bits, or to
// fp16's smallest step.
void check_rope_frequencies(const FoundTensor& frequencies, const ModelConfig& c) {
  require_shape(frequencies, {c.head_size / 2});
  std::vector<double> found(static_cast<std::size_t>(c.head_size / 2));
  frequencies.file->read(*frequencies.stored, 0, std::span(found));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double expected = static_cast<double>(
        inverse_frequency(static_cast<std::int64_t>(i), c.head_size, c.rope_theta, c.rope_scaling));
    if (!(std::abs(found[i] - expected) <= expected * 0x1p-8 + 0x1p-25))
      frequencies.fail(str("has ", found[i], " as frequency ", i, "; expected ", expected,
                           ", from rope_theta ", c.rope_theta,
                           " and the scaling in config.json. "
                           "Correct config.json, or remove the tensor if config.json is right"));
  }
}

}  // namespace

void check_unread(const WeightFiles& files, const ModelConfig& config, const SlicesByName& parts) {
  check_tied_head(files, config, parts);
  for (const auto& [buffer, found] : files.buffers())
    switch (buffer) {
      case ModelBuffer::causal_mask: check_causal_mask(found); break;
      case ModelBuffer::masked_score: check_masked_score(found); break;
      case ModelBuffer::rope_frequencies: check_rope_frequencies(found, config); break;
    }
}

}  // namespace lockstep
