#include "data/pack/batch_pipeline.h"

#include <utility>

#include "core/start_thread.h"

namespace lockstep {

BatchPipeline::BatchPipeline(int threads, std::function<void(TextBatch&, int thread)> encode,
                             std::function<void(TextBatch&)> write)
    : encode_(std::move(encode)), write_(std::move(write)) {
  // One batch in each thread, two queued for each, and some at both ends.
  const auto batches = 3 * static_cast<std::size_t>(threads) + 4;
  most_bytes_ = batches * kBatchBytes;
  for (std::size_t i = 0; i < batches; ++i) {
    free_.push_back(std::make_unique<TextBatch>());
    free_.back()->clear();
  }
  try {
    threads_.push_back(start_thread([this] { write_batches(); }));
    for (int thread = 0; thread < threads; ++thread)
      threads_.push_back(start_thread([this, thread] { encode_batches(thread); }));
  } catch (...) {
    stop();
    throw;
  }
}

BatchPipeline::~BatchPipeline() {
  stop();
}

void BatchPipeline::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_)
    if (thread.joinable()) thread.join();
}

std::unique_ptr<TextBatch> BatchPipeline::take_free() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || !free_.empty(); });
  if (error_) std::rethrow_exception(error_);
  auto batch = std::move(free_.back());
  free_.pop_back();
  lock.unlock();
  return batch;
}

void BatchPipeline::submit(std::unique_ptr<TextBatch> batch) {
  std::unique_lock lock(mutex_);
  const auto bytes = batch->text.capacity();
  changed_.wait(lock, [&] { return error_ || bytes_ == 0 || bytes_ + bytes <= most_bytes_; });
  if (error_) std::rethrow_exception(error_);
  bytes_ += bytes;
  batch->number = submitted_++;
  read_.push_back(std::move(batch));
  changed_.notify_all();
}

void BatchPipeline::finish() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return error_ || written_ == submitted_; });
  }
  stop();
  if (error_) std::rethrow_exception(error_);
}

void BatchPipeline::encode_batches(int thread) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || error_ || !read_.empty(); });
    if (stopping_ || error_) return;
    auto batch = std::move(read_.front());
    read_.pop_front();
    lock.unlock();
    try {
      encode_(*batch, thread);
    } catch (...) {
      batch->error = std::current_exception();
    }
    lock.lock();
    encoded_[batch->number] = std::move(batch);
    changed_.notify_all();
  }
}

void BatchPipeline::write_batches() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] {
      return stopping_ || (!encoded_.empty() && encoded_.begin()->first == written_);
    });
    if (stopping_) return;
    auto batch = std::move(encoded_.begin()->second);
    encoded_.erase(encoded_.begin());
    lock.unlock();
    const auto bytes = batch->text.capacity();
    std::exception_ptr error = batch->error;
    try {
      if (!error) write_(*batch);
      batch->clear();  // frees memory here, because a large batch may not be used again
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    if (!error) {
      bytes_ -= bytes;
      ++written_;
      free_.push_back(std::move(batch));
    }
    changed_.notify_all();
    if (error) return;
  }
}

}  // namespace lockstep
