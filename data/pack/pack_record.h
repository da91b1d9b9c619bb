// PackRecord is the progress of pack, from which the same command resumes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/pack/shard_writer.h"
#include "data/pack/text_batch.h"

namespace lockstep {

// A full shard. The list beside the record has one per line; the list only grows.
struct PackedShard {
  std::int64_t split = 0;
  Manifest::Shard shard;

  std::string line() const;
  // Throws DataError "WHAT: ..." for invalid text.
  static PackedShard parse(std::string_view line, const std::string& what);
};

struct PackRecord {
  InputPosition position;      // all input before it is written
  std::int64_t documents = 0;  // started documents of all splits
  std::int64_t split = 0;      // split of the document that continues at `position`
  InputDefects odd;
  std::vector<ShardWriter::State> splits;
  std::int64_t list_bytes = 0;  // bytes of the list of full shards; list_hash is their hash
  std::string list_hash;
  std::vector<std::vector<Manifest::Shard>> shards;  // full shards of each split

  void add(PackedShard shard);  // adds to `shards`; throws DataError for an invalid split

  // Throws DataError if the record does not fit the number of files and datasets, or the layout.
  void check(std::size_t files, std::size_t datasets, const ShardLayout& layout) const;

  std::string dump() const;
  // Throws DataError "WHAT: ..." for invalid text.
  static PackRecord parse(std::string_view text, const std::string& what);
};

}  // namespace lockstep
