// PackRecord: how far pack got, so that the same command can go on from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/pack/shard_writer.h"
#include "data/pack/text_batch.h"

namespace lockstep {

// A full shard, as it stands on a line of the list beside the record: it grows, and nothing of it
// is written twice.
struct PackedShard {
  std::int64_t split = 0;
  Manifest::Shard shard;

  std::string line() const;
  // Throws DataError "WHAT: ..." for what is none.
  static PackedShard parse(std::string_view line, const std::string& what);
};

struct PackRecord {
  InputPosition position;      // all before it is written
  std::int64_t documents = 0;  // that began, of all splits
  std::int64_t split = 0;      // of the document at `position`, where one goes on
  OddInput odd;
  std::vector<ShardWriter::State> splits;
  std::int64_t list_bytes = 0;  // of the list of full shards, and their hash
  std::string list_hash;
  std::vector<std::vector<Manifest::Shard>> shards;  // what the list says of each split

  void add(PackedShard shard);  // to `shards`; throws DataError where it cannot be

  // Throws DataError where it cannot be of so many files, packed into so many datasets.
  void check(std::size_t files, std::size_t datasets, const ShardLayout& layout) const;

  std::string dump() const;
  // Throws DataError "WHAT: ..." for what is none.
  static PackRecord parse(std::string_view text, const std::string& what);
};

}  // namespace lockstep
