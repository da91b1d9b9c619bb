// Order decides which work of the device is before which other work. Work of a stream is after
// earlier work of the stream, after the events that the stream waits for, and after work that the
// host waited for. Streams, events and the host record the number of works of each stream before
// them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>

namespace simt {

using Clock = std::map<const void*, std::uint64_t>;  // by stream, a cudaStream_t
void merge(Clock& into, const Clock& from);

class Order {
 public:
  void begin(const void* stream);  // the next work of the stream, which now runs
  void end() { running_ = nullptr; }
  const Clock& of(const void* stream) { return streams_[stream]; }
  void wait(const void* stream, const Clock& event) { merge(streams_[stream], event); }
  void host_waits(const Clock& event) { merge(host_, event); }

  // Thread numbers from `first` on belong to the running work. Numbers only grow.
  void threads_begin(std::uint32_t first);
  // True if the work of an earlier thread is ordered before the running work.
  bool is_before(std::uint32_t thread) const {
    return thread < first_unordered_ || is_ordered(thread);
  }

 private:
  struct Work {
    std::uint32_t first_thread;
    const void* stream;
    std::uint64_t number;
    bool is_in(const Clock& clock) const;
  };
  bool is_ordered(std::uint32_t thread) const;

  std::map<const void*, Clock> streams_;
  Clock host_;
  const void* running_ = nullptr;  // nullptr: work without a stream, after all other work
  std::deque<Work> works_;         // the host waited for all older ones
  std::uint32_t first_unordered_ = 0;
};

Order& order();  // guarded by device_mutex()

}  // namespace simt
