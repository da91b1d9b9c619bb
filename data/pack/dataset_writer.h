// DatasetWriter writes batches into the shards of one dataset, or of two (train and validation). It
// saves its progress whenever a shard is full.
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

// Whether document i is held out. A hash draws one document of each stretch of 1 / share documents.
// The share is exact to within one document and independent of periods in the text.
bool is_validation(std::int64_t document, double share);

class DatasetWriter {
 public:
  // Starts at the progress that `directory` recorded.
  DatasetWriter(PackDirectory& directory, double validation_share, const ShardLayout& layout);

  void write(const TextBatch& batch);  // batches come in order

  void wait() { background_.wait(); }  // waits until the current save is complete

  std::int64_t documents(std::size_t split) const { return splits_[split].documents; }
  std::int64_t text_bytes() const { return text_bytes_; }  // bytes that this process wrote
  const InputDefects& odd() const { return record_.odd; }  // of all input, including earlier runs

  // Completes the splits: syncs their shards and dataset.json to the disk. Returns their manifests.
  std::vector<Manifest> finish(const Manifest& about);
  const std::filesystem::path& directory(std::size_t split) const {
    return splits_[split].writer->directory();
  }

 private:
  struct Split {
    std::unique_ptr<ShardWriter> writer;
    std::int64_t documents = 0;
    std::size_t saved = 0;  // number of saved full shards
  };
  // Consecutive tokens of a batch that belong to one split.
  struct Run {
    std::size_t split = 0;
    std::int64_t first = 0, tokens = 0;  // position in the batch
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
  std::vector<std::unique_ptr<OpenShard>> full_;  // shards that are being committed
  BackgroundTask background_;  // last member, so that it ends before the data that it uses
};

}  // namespace lockstep
