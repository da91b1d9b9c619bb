// Sources are the datasets that a run reads, cut into rows. They map sample g of the run to a row.
// With one source it is row g of its order. With more, the mixture gives the source and the index
// within it. If the mixture changed during the run, the history gives the mixture of each sample.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "data/batch_rows.h"
#include "data/dataset.h"
#include "data/history.h"
#include "data/source.h"

namespace lockstep {

// Resolves data.rows = "auto": packed if one dataset has masks and all list where documents end,
// else windows.
RowKind automatic_rows(const std::deque<Dataset>& datasets);

class Sources {
 public:
  struct Config {
    std::vector<DataSource> sources;  // one, or several with weights or epochs
    std::uint64_t seed = 0;           // seed of the order
    std::int64_t sequence_length = 0;
    std::int64_t vocabulary = 0;  // of the model; a larger tokenizer is an error; 0: any
    RowKind rows = RowKind::automatic;
    std::int64_t shuffle_shards = 0;
    bool shuffle = true;          // false: the rows of the only source, in the order of its dataset
    ShardFiles* files = nullptr;  // opens the shards and outlives the sources; null: local files
  };

  // Throws DataError if a dataset is damaged or has no row, ConfigError if the datasets have
  // different tokenizers.
  explicit Sources(const Config& config);

  std::size_t count() const { return datasets_.size(); }
  const Dataset& dataset(std::size_t source) const { return datasets_[source]; }
  const BatchRows& rows(std::size_t source) const { return rows_[source]; }
  const std::string& name(std::size_t source) const { return names_[source]; }
  RowKind row_kind() const { return row_kind_; }

  std::int64_t total_rows() const;    // of all sources
  std::int64_t total_tokens() const;  // of all sources

  // The data history: of a fresh start, until go_on sets that of a resumed run, see continued.
  const DataHistory& history() const { return history_; }
  void go_on(DataHistory history);
  // Converts the counter of an open source, which counts rows of `length`, to its current rows.
  std::int64_t carried_over(const Stretch::Source& source, std::int64_t length) const;

  struct Place {
    std::size_t source = 0;
    BatchRows::Row row;
  };
  // Returns sample g >= 0. Throws DataError if it belongs to a source that is no longer configured,
  // or has another row length.
  Place at(std::int64_t g) const;

  // Returns for each source the number of its samples before sample g. Sources that are no longer
  // configured are included, at their place in the last stretch.
  std::vector<std::int64_t> counters(std::int64_t g) const;

  struct Shard {
    std::size_t source = 0, shard = 0;
    friend bool operator==(const Shard&, const Shard&) = default;
  };
  // Returns the shards that samples from g on read, at most `most` of each source. Sources take
  // turns, and the shards of each come soonest first. Without shuffle_shards any shard may come
  // next; they are in shard order.
  std::vector<Shard> shards_ahead(std::int64_t g, std::size_t most) const;
  // The same without shuffle: the shards of samples [g, end), then of those before g.
  std::vector<Shard> shards_in_order(std::int64_t g, std::int64_t end, std::size_t most) const;

 private:
  static constexpr auto kGone = static_cast<std::size_t>(-1);
  // A stretch with its mixture. source has the index of each of its sources here, or kGone.
  struct Part {
    Mixture mixture;
    std::vector<std::size_t> source;
  };
  std::size_t part_of(std::int64_t g) const;
  BatchRows::Config rows_config(std::int64_t length) const;
  Stretch fresh_start(const Config& config) const;

  std::deque<Dataset> datasets_;  // a deque, because rows refer to them
  std::deque<BatchRows> rows_;
  std::vector<std::string> names_;
  RowKind row_kind_;
  std::int64_t length_, shuffle_shards_;
  bool shuffle_;
  DataHistory history_;
  std::vector<Part> parts_;  // one per stretch
};

}  // namespace lockstep
