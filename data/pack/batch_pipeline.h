// BatchPipeline: batches go from the thread that reads them through several that encode them to one
// that writes them, in the order in which they were read.
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
  // `encode` is called by any of `threads`, which are numbered; `write` by one thread, until one of
  // them throws.
  BatchPipeline(int threads, std::function<void(TextBatch&, int thread)> encode,
                std::function<void(TextBatch&)> write);
  BatchPipeline(const BatchPipeline&) = delete;
  BatchPipeline& operator=(const BatchPipeline&) = delete;
  ~BatchPipeline();  // what was not written yet is dropped

  // Of one thread. Each waits where too much is under way, and throws what writing has thrown.
  std::unique_ptr<TextBatch> take_free();  // clear
  void submit(std::unique_ptr<TextBatch> batch);

  // Waits until all is written. Throws what the first batch in the order was refused for.
  void finish();

 private:
  void encode_batches(int thread);
  void write_batches();
  void stop();

  std::function<void(TextBatch&, int thread)> encode_;
  std::function<void(TextBatch&)> write_;
  std::size_t most_bytes_;  // of text under way; a single batch may have more
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<TextBatch>>
      free_;  // clear; the last one used is taken: it may be in the cache
  std::deque<std::unique_ptr<TextBatch>> read_;
  std::map<std::int64_t, std::unique_ptr<TextBatch>> encoded_;
  std::int64_t submitted_ = 0, written_ = 0;
  std::size_t bytes_ = 0;  // under way
  bool stopping_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;  // the first writes
};

}  // namespace lockstep
