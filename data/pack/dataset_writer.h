// DatasetWriter: puts batches into the shards of one dataset or two, train and validation, and
// saves how far it got whenever a shard is full.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "data/pack/background_task.h"
#include "data/pack/pack_directory.h"
#include "data/pack/shard_writer.h"
#include "data/pack/text_batch.h"

namespace lockstep {

// Whether document i is held out: of each stretch of 1 / share documents one, drawn by a hash, so
// that the share is exact to within one document and follows no period of the text.
bool is_validation(std::int64_t document, double share);

class DatasetWriter {
 public:
  // From where `directory` says.
  DatasetWriter(PackDirectory& directory, double validation_share, const ShardLayout& layout);

  void write(const TextBatch& batch);  // in order

  void wait() { background_.wait(); }  // until what is saved now is

  std::int64_t documents(std::size_t split) const { return splits_[split].documents; }
  std::int64_t text_bytes() const { return text_bytes_; }  // written, not those gone on from
  const OddInput& odd() const { return record_.odd; }      // of all, those gone on from too

  // Of the splits: their shards and dataset.json are on the disk.
  std::vector<Manifest> finish(const Manifest& about);
  const std::filesystem::path& directory(std::size_t split) const {
    return splits_[split].writer->directory();
  }

 private:
  struct Split {
    std::unique_ptr<ShardWriter> writer;
    std::int64_t documents = 0;
    std::size_t saved = 0;  // full shards
  };
  // Of one split, tokens of a batch that lie behind each other.
  struct Run {
    std::size_t split = 0;
    std::int64_t first = 0, tokens = 0;  // in the batch
    std::vector<std::int64_t> ends;
  };
  void add(const TextBatch& batch, Run& run);
  void save();

  PackDirectory& directory_;
  double validation_share_;
  ShardLayout layout_;
  PackRecord record_;
  std::vector<Split> splits_;
  std::int64_t text_bytes_ = 0;
  Run run_;
  std::vector<std::unique_ptr<OpenShard>> full_;  // that are being committed
  BackgroundTask background_;                     // the last: it ends before what it works on
};

}  // namespace lockstep
