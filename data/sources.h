// Sources: the datasets that a run reads, cut into rows, and the row that is its sample g. With one
// source that is row g of its order; with more, the mixture says which source's, and the
// how-manieth; and where the mixture changed on the way, the history says when.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/history.h"
#include "data/rows.h"
#include "data/source.h"

namespace lockstep {

// What data.rows = "auto" is of datasets: packed where one has masks and all say where documents
// end, else windows.
RowKind automatic_rows(const std::deque<Dataset>& datasets);

class Sources {
 public:
  struct Config {
    std::vector<DataSource> sources;  // one, or more with weights or epochs
    std::uint64_t seed = 0;           // of the order
    std::int64_t sequence_length = 0;
    std::int64_t vocabulary = 0;  // of the model: a larger tokenizer is refused; 0: any
    RowKind rows = RowKind::automatic;
    std::int64_t shuffle_shards = 0;
    bool shuffle = true;          // false: one source's rows as they lie in its dataset
    ShardFiles* files = nullptr;  // opens the shards, and outlives this; null: as usual
  };

  // Throws DataError where a dataset is damaged or has not one row, ConfigError where their tokens
  // are of several tokenizers.
  explicit Sources(const Config& config);

  std::size_t count() const { return datasets_.size(); }
  const Dataset& dataset(std::size_t source) const { return datasets_[source]; }
  const Rows& rows(std::size_t source) const { return rows_[source]; }
  const std::string& name(std::size_t source) const { return names_[source]; }
  RowKind row_kind() const { return row_kind_; }

  std::int64_t total_rows() const;    // of all sources
  std::int64_t total_tokens() const;  // likewise

  // What is read of which sample: of a fresh start, until a run goes on from another, see
  // continued.
  const DataHistory& history() const { return history_; }
  void go_on(DataHistory history);
  // Of one that is there, with its counter of rows of `length`: its counter of rows as they are.
  std::int64_t carried_over(const Stretch::Source& source, std::int64_t length) const;

  struct Place {
    std::size_t source = 0;
    Rows::Row row;
  };
  // Sample g >= 0. Throws DataError where it was of a source that is none any more, or a row of
  // another length.
  Place at(std::int64_t g) const;

  // Of each source, its samples before sample g; those of sources that are no longer there too, at
  // their place in the last stretch.
  std::vector<std::int64_t> counters(std::int64_t g) const;

  struct Shard {
    std::size_t source = 0, shard = 0;
    friend bool operator==(const Shard&, const Shard&) = default;
  };
  // The shards that samples from g on read, each source's soonest first, the sources by turns;
  // `most` of each. Without shuffle_shards any shard may come next: they are in their own order.
  std::vector<Shard> shards_ahead(std::int64_t g, std::size_t most) const;
  // The same without shuffle, of samples [g, end), and then of those that come in front of g.
  std::vector<Shard> shards_in_order(std::int64_t g, std::int64_t end, std::size_t most) const;

 private:
  static constexpr auto kGone = static_cast<std::size_t>(-1);
  // A stretch, ready to be asked: of its sources, which each is here.
  struct Part {
    Mixture mixture;
    std::vector<std::size_t> source;
  };
  std::size_t part_of(std::int64_t g) const;
  Rows::Config rows_config(std::int64_t length) const;
  Stretch fresh_start(const Config& config) const;

  std::deque<Dataset> datasets_;  // a deque: rows refer to them
  std::deque<Rows> rows_;
  std::vector<std::string> names_;
  RowKind row_kind_;
  std::int64_t length_, shuffle_shards_;
  bool shuffle_;
  DataHistory history_;
  std::vector<Part> parts_;  // of each stretch
};

}  // namespace lockstep
