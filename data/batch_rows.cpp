#include "data/batch_rows.h"

#include <algorithm>
#include <numeric>

#include "data/order.h"

namespace lockstep {

BatchRows::BatchRows(const Dataset& dataset, const Config& config)
    : dataset_(dataset), config_(config) {
  const auto T = config.sequence_length;
  if (config.kind == RowKind::examples || config.kind == RowKind::packed) {
    LOCKSTEP_CHECK(config.shuffle_shards == 0, "rows of documents with shuffle_shards");
    index_documents();
    return;
  }
  LOCKSTEP_CHECK(config.kind == RowKind::windows, "rows of the kind ", name(config.kind));
  if (config.shuffle_shards == 0) {
    count_ = (dataset.tokens() - 1) / T;
  } else {
    std::vector<std::int64_t> windows;
    const auto shards = dataset.shard_of(dataset.tokens() - 1) + 1;
    for (std::size_t shard = 0; shard < shards; ++shard) {
      windows.push_back((dataset.shard_start(shard + 1) - dataset.shard_start(shard) - 1) / T);
      count_ += windows.back();
    }
    if (count_ > 0) by_shards_.emplace(std::move(windows), config.shuffle_shards);
  }
  if (count_ < 1)
    throw DataError(str("has ", dataset.tokens(), " tokens, ",
                        config.shuffle_shards > 0 ? "but no shard has " : "fewer than ",
                        "one window of ", T, " and the token after it"));
}

// Returns the number of inputs of the tokens [first, end). The target of each is the next token. If
// documents start with a separator token, that token is the target of the last token of a document
// and marks its end. Otherwise the last token of a row is only a target.
std::int64_t BatchRows::inputs_of(std::int64_t first, std::int64_t end) const {
  const int behind = dataset_.format().boundary == Boundary::front ? 1 : 0;
  return std::min(end + behind, dataset_.tokens()) - first - 1;
}

void BatchRows::index_documents() {
  const auto T = config_.sequence_length;
  std::int64_t last = 0;
  const auto close = [&](std::int64_t end) {
    inputs_ += std::min(inputs_of(starts_.back(), end), T);
    starts_.push_back(end);
  };
  dataset_.for_each_document([&](std::int64_t first, std::int64_t end) {
    LOCKSTEP_CHECK(first == last && end > first, "a document of tokens ", first, " to ", end,
                   " after token ", last);
    if (starts_.empty())
      starts_.push_back(first);
    else if (config_.kind == RowKind::examples || inputs_of(starts_.back(), end) > T)
      close(first);
    ++documents_;
    if (inputs_of(first, end) > T) ++cut_documents_;
    last = end;
  });
  if (starts_.empty()) throw DataError("has no documents");
  close(last);
  starts_.shrink_to_fit();
  count_ = static_cast<std::int64_t>(starts_.size()) - 1;
}

BatchRows::Row BatchRows::in_order(std::int64_t i) const {
  LOCKSTEP_CHECK(0 <= i && i < count_ && !by_shards_, "row ", i, " of ", count_);
  const auto T = config_.sequence_length;
  if (starts_.empty()) return {i * T, T};
  const auto first = starts_[static_cast<std::size_t>(i)];
  return {first, std::min(inputs_of(first, starts_[static_cast<std::size_t>(i) + 1]), T)};
}

BatchRows::Row BatchRows::at(std::uint64_t seed, std::int64_t n) const {
  if (!by_shards_) return in_order(sample_at(seed, count_, n));
  const auto [shard, index] = by_shards_->at(seed, n);
  const auto T = config_.sequence_length;
  return {dataset_.shard_start(shard) + index * T, T};
}

std::vector<std::size_t> BatchRows::shards_ahead(std::uint64_t seed, std::int64_t n,
                                                 std::size_t most) const {
  if (by_shards_) return by_shards_->shards_ahead(seed, n, most);
  std::vector<std::size_t> all(std::min(most, dataset_.shards()));
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

double BatchRows::padding() const {
  if (starts_.empty()) return 0;
  return 1 - static_cast<double>(inputs_) /
                 (static_cast<double>(count_) * static_cast<double>(config_.sequence_length));
}

}  // namespace lockstep
