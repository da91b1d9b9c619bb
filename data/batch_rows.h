// BatchRows cuts a dataset into the rows of batches. A row has T tokens and the token after them.
// The order has each row once per epoch, see data/order.h and data/shard_order.h.
//
//   windows   row i is the T tokens from token i T on. It may cross shards, except with
//             shuffle_shards: then each shard's rows start at its own first token.
//   examples  row i is document i.
//   packed    as many whole documents as fit, one after the other, in the order of the dataset.
// A document longer than a row is cut. An index of 8 bytes per row has the start of each row of
// documents. It is built from the ends of all documents when the run starts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/dataset.h"
#include "data/shard_order.h"
#include "data/source.h"

namespace lockstep {

class BatchRows {
 public:
  struct Config {
    RowKind kind = RowKind::windows;  // not RowKind::automatic
    std::int64_t sequence_length = 0;
    std::int64_t shuffle_shards = 0;  // for windows: number of shards shuffled together; 0: all
  };

  // Throws DataError if there is no row. Keeps a reference to `dataset`.
  BatchRows(const Dataset& dataset, const Config& config);

  std::int64_t count() const { return count_; }  // rows per epoch

  // A row: its inputs are the tokens from `first` on, and the target of each is the next token.
  struct Row {
    std::int64_t first = 0;
    std::int64_t tokens = 0;  // number of inputs, at most T; the rest of the row is padding
  };
  Row at(std::uint64_t seed, std::int64_t n) const;  // sample n >= 0 of the order
  Row in_order(std::int64_t i) const;                // i < count(), in the order of the dataset

  // See ShardOrder. Without shuffle_shards any shard may come next; the result is in shard order.
  std::vector<std::size_t> shards_ahead(std::uint64_t seed, std::int64_t n, std::size_t most) const;

  // The following are for rows of documents.
  std::int64_t documents() const { return documents_; }
  std::int64_t cut_documents() const { return cut_documents_; }  // longer than a row
  double padding() const;  // share of padding in all positions

 private:
  void index_documents();
  std::int64_t inputs_of(std::int64_t first, std::int64_t end) const;

  const Dataset& dataset_;
  Config config_;
  std::int64_t count_ = 0;
  std::optional<ShardOrder> by_shards_;
  // First token of each row of documents, then the end of the last.
  std::vector<std::int64_t> starts_;
  std::int64_t documents_ = 0, cut_documents_ = 0, inputs_ = 0;
};

}  // namespace lockstep
