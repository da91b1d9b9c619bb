// Rows: a dataset cut into the rows of batches, of T tokens and the token behind each, and their
// order: epoch after epoch, each row once, see data/order.h and data/shard_order.h.
//
//   windows   row i is the tokens from i T on; it may cross shards, but not with shuffle_shards,
//             where each shard's are counted from its own first token.
//   examples  row i is document i.
//   packed    as many whole documents as fit, one behind the other, in the order of the dataset.
// A document that is longer than a row is cut. An index of 8 bytes a row says where the rows of
// documents begin; it is made of all documents' ends when the run starts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/dataset.h"
#include "data/shard_order.h"
#include "data/source.h"

namespace lockstep {

class Rows {
 public:
  struct Config {
    RowKind kind = RowKind::windows;  // not automatic
    std::int64_t sequence_length = 0;
    std::int64_t shuffle_shards = 0;  // of windows: shards shuffled together; 0: all
  };

  // Throws DataError where there is not one row. `dataset` is read later too.
  Rows(const Dataset& dataset, const Config& config);

  std::int64_t count() const { return count_; }  // an epoch

  // The tokens from `first` on are inputs, each with the token behind it as its target.
  struct Row {
    std::int64_t first = 0;
    std::int64_t tokens = 0;  // inputs: at most T; what is behind them is padding
  };
  Row at(std::uint64_t seed, std::int64_t n) const;  // sample n >= 0 of the order
  Row in_order(std::int64_t i) const;                // i < count(), as they lie in the dataset

  // See ShardOrder. Without shuffle_shards any shard may come next: they are in their own order.
  std::vector<std::size_t> shards_ahead(std::uint64_t seed, std::int64_t n, std::size_t most) const;

  // Of rows of documents.
  std::int64_t documents() const { return documents_; }
  std::int64_t cut_documents() const { return cut_documents_; }  // longer than a row
  double padding() const;                                        // the share of all places

 private:
  void index_documents();
  std::int64_t inputs_of(std::int64_t first, std::int64_t end) const;

  const Dataset& dataset_;
  Config config_;
  std::int64_t count_ = 0;
  std::optional<ShardOrder> by_shards_;
  std::vector<std::int64_t> starts_;  // of rows of documents, and the end of the last
  std::int64_t documents_ = 0, cut_documents_ = 0, inputs_ = 0;
};

}  // namespace lockstep
