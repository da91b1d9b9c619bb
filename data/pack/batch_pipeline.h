// BatchPipeline passes batches from one reading thread through several encoding threads to one
// writing thread. Batches are written in the order in which they were read.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/pack/text_batch.h"

namespace lockstep {

class BatchPipeline {
 public:
  // Any of `threads` threads calls `encode` with its number; one thread calls `write`, until one of
  // the calls throws.
  BatchPipeline(int threads, std::function<void(TextBatch&, int thread)> encode,
                std::function<void(TextBatch&)> write);
  BatchPipeline(const BatchPipeline&) = delete;
  BatchPipeline& operator=(const BatchPipeline&) = delete;
  ~BatchPipeline();  // drops batches that were not written

  // For one thread. Both wait if too much is in progress, and throw the exception of writing.
  std::unique_ptr<TextBatch> take_free();  // returns a cleared batch
  void submit(std::unique_ptr<TextBatch> batch);

  // Waits until all batches are written. Throws the error of the first failed batch in order.
  void finish();

 private:
  void encode_batches(int thread);
  void write_batches();
  void stop();

  std::function<void(TextBatch&, int thread)> encode_;
  std::function<void(TextBatch&)> write_;
  std::size_t most_bytes_;  // limit of text in progress; a single batch may have more
  std::mutex mutex_;
  std::condition_variable changed_;
  // Cleared. The last used one is taken first, because it may be in the CPU cache.
  std::vector<std::unique_ptr<TextBatch>> free_;
  std::deque<std::unique_ptr<TextBatch>> read_;
  std::map<std::int64_t, std::unique_ptr<TextBatch>> encoded_;
  std::int64_t submitted_ = 0, written_ = 0;
  std::size_t bytes_ = 0;  // text in progress
  bool stopping_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;  // the first one writes
};

}  // namespace lockstep
