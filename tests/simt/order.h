// Order: which work of the device comes before which other. Work of a stream comes after what that
// stream was given before, after what it was told to wait for, and after what the host had waited
// for. Streams, events and the host record the works before them: of each stream, how many works.
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

  // From here on thread numbers, which only grow, are of the work that runs.
  void threads_begin(std::uint32_t first);
  // Whether the work of a thread, that began before, comes before the one that runs.
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
  const void* running_ = nullptr;  // without: work that no stream was given, after all other
  std::deque<Work> works_;         // the host waited for all older ones
  std::uint32_t first_unordered_ = 0;
};

Order& order();  // guarded by device_mutex()

}  // namespace simt
