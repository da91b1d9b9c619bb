// Stream and Event provide in-order execution on one device. A CUDA stream queues its work. A
// queued CPU stream does the same with a separate thread, so that communication overlaps with
// compute. Any other CPU stream runs each call at once, on its own threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/function_ref.h"
#include "core/tensor.h"

struct CUstream_st;  // CUDA's handle types, so that host code needs no CUDA header
struct CUevent_st;

namespace lockstep {

class EventPool;
class OpLog;
class Timeline;
class Trace;
class WorkQueue;

// Event is a point in a stream's work. A default event is done, as is all work of a CPU stream that
// is not queued. CUDA events come from the stream's pool and return to it on destruction, so a step
// creates none. An event must not outlive its stream. Thread-safe.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  // Blocks the host until the event is done. Rethrows errors of a queued stream's work.
  void synchronize() const;
  bool is_done() const;                              // true also if the work failed
  double seconds_since(const Event& earlier) const;  // both done, from record_timed() of CUDA

 private:
  friend class Stream;
  Event(EventPool* pool, CUevent_st* event) : pool_(pool), event_(event) {}
  Event(WorkQueue* queue, std::int64_t ticket) : queue_(queue), ticket_(ticket) {}
  EventPool* pool_ = nullptr;  // CUDA stream
  CUevent_st* event_ = nullptr;
  Event(OpLog* log, std::int64_t number) : log_(log), ticket_(number) {}
  WorkQueue* queue_ = nullptr;  // queued stream
  OpLog* log_ = nullptr;        // measuring stream
  std::int64_t ticket_ = 0;
};

class Stream {
 public:
  // queued: CPU stream with a thread that runs the work of enqueue().
  // measuring: runs nothing; operators check their arguments and return.
  enum class Mode : std::uint8_t { immediate, queued, measuring };

  // urgent: on a GPU, its kernels get free multiprocessors before those of other streams. Without
  // it, small kernels wait until the blocks of a large matmul have all started.
  enum class Priority : std::uint8_t { normal, urgent };

  // `threads`: number of CPUs for the kernels of a CPU stream, with the caller's. Throws
  // ConfigError if the GPU cannot be used; a measuring stream needs no GPU.
  Stream(Device device, const char* name, Mode mode = Mode::immediate, int threads = 1,
         Priority priority = Priority::normal);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  Device device() const { return device_; }
  const char* name() const { return name_; }
  bool is_cuda() const { return device_.kind == Device::Kind::cuda; }
  bool is_measuring() const { return mode_ == Mode::measuring; }
  bool is_queued() const { return mode_ == Mode::queued; }
  int threads() const { return threads_; }

  // Calls work(stream) in stream order: now, with this stream; or later, in the thread of a queued
  // stream, with an immediate stream. Objects that `work` refers to must live until then. If `work`
  // throws in that thread, later queued work is skipped, and waiting callers get the error.
  template <class Work>
  void enqueue(const Work& work) {
    static_assert(std::is_trivially_copyable_v<Work> && sizeof(Work) <= kMostWorkBytes);
    if (!is_queued()) return work(*this);
    void (*const call)(const void*, Stream&) = [](const void* kept, Stream& stream) {
      (*static_cast<const Work*>(kept))(stream);
    };
    enqueue(call, &work, sizeof work);
  }
  static constexpr std::size_t kMostWorkBytes = 400;

  // CPU, not queued: calls body(task, thread) for each task in [0, tasks); see ThreadPool::run.
  void parallel_for(std::int64_t tasks, FunctionRef<void(std::int64_t task, int thread)> body);

  // Same, but calls body(begin, end) over [0, n) in pieces of at least `grain`, or in one piece.
  void parallel_ranges(std::int64_t n, std::int64_t grain,
                       FunctionRef<void(std::int64_t begin, std::int64_t end)> body);

  // Copies `from` to `to` in stream order. Both have the same type and number of elements. A CUDA
  // stream copies between its device and pinned host memory in either direction, and on the device.
  void copy(Tensor to, ConstTensor from);

  // Kept is an object that a library keeps for this stream, such as its handle. kept() creates it
  // on first use, one per type; the stream destroys it.
  class Kept {
   public:
    Kept() = default;
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    virtual ~Kept() = default;
  };
  template <class T>
  T& kept() {
    static constexpr char kType = 0;  // its address identifies the type
    auto& slot = kept_slot(&kType);
    if (!slot) slot = std::make_unique<T>();
    return static_cast<T&>(*slot);
  }

  Event record();                 // event that is done when all work enqueued so far is done
  Event record_timed();           // same, with its time
  void wait(const Event& event);  // later work waits for the event; the host does not
  void synchronize();             // the host waits; never inside a step
  CUstream_st* native() const;    // CUDA streams only

  // From now on spans of this stream go to a row of `timeline`; nullptr stops that.
  void set_timeline(Timeline* timeline) { timeline_ = timeline; }
  Timeline* timeline() const { return timeline_; }

  // From now on `trace` measures this stream's time by component; nullptr stops that.
  void set_trace(Trace* trace) { trace_ = trace; }
  Trace* trace() const { return trace_; }

  // From now on `log` records this stream's operators; nullptr stops that. Not for queued streams.
  void set_op_log(OpLog* log) { op_log_ = log; }
  OpLog* op_log() const { return op_log_; }

  // Sets whether an operator runs; operators that it calls are part of it. Returns the old value.
  bool set_in_call(bool in_call) { return std::exchange(in_call_, in_call); }

 private:
  std::unique_ptr<Kept>& kept_slot(const void* type);
  Event record(EventPool& pool);
  void enqueue(void (*call)(const void*, Stream&), const void* work, std::size_t bytes);

  Device device_;
  const char* name_;
  Mode mode_;
  int threads_;
  struct State;
  std::unique_ptr<State> state_;
  Timeline* timeline_ = nullptr;
  Trace* trace_ = nullptr;
  OpLog* op_log_ = nullptr;
  bool in_call_ = false;
};

}  // namespace lockstep
