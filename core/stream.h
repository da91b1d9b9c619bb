// Stream and Event: in-order execution on one device. A CUDA stream queues what it is given. So
// does a queued CPU stream, for a thread of its own: communication works beside computing there
// too. Any other CPU stream does each call at once, on its own threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/function_ref.h"
#include "core/tensor.h"

struct CUstream_st;  // CUDA's own handle types, so that host code needs no CUDA header
struct CUevent_st;

namespace lockstep {

class EventPool;
class OpLog;
class Timeline;
class Trace;
class WorkQueue;

// A point in a stream's work. Default: already done, as all work of a CPU stream is that is not
// queued. A step creates none: those of CUDA are drawn from their stream's pool and given back on
// destruction. It must not outlive its stream. Any thread may ask it.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  // The host waits. Throws what work of a queued stream threw.
  void synchronize() const;
  bool is_done() const;                              // also where it failed
  double seconds_since(const Event& earlier) const;  // both done, of record_timed() of CUDA streams

 private:
  friend class Stream;
  Event(EventPool* pool, CUevent_st* event) : pool_(pool), event_(event) {}
  Event(WorkQueue* queue, std::int64_t ticket) : queue_(queue), ticket_(ticket) {}
  EventPool* pool_ = nullptr;  // of CUDA
  CUevent_st* event_ = nullptr;
  Event(OpLog* log, std::int64_t number) : log_(log), ticket_(number) {}
  WorkQueue* queue_ = nullptr;  // of a queued stream
  OpLog* log_ = nullptr;        // of a measuring one
  std::int64_t ticket_ = 0;
};

class Stream {
 public:
  // queued: of a CPU, with a thread that does what enqueue() is given.
  // measuring: run nothing; an operator checks its arguments and returns.
  enum class Mode : std::uint8_t { immediate, queued, measuring };

  // `threads`: how many processors a CPU stream's kernels use, the caller's included. Throws
  // ConfigError where the GPU cannot be used; a measuring stream needs none.
  Stream(Device device, const char* name, Mode mode = Mode::immediate, int threads = 1);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  Device device() const { return device_; }
  const char* name() const { return name_; }
  bool is_cuda() const { return device_.kind == Device::Kind::cuda; }
  bool is_measuring() const { return mode_ == Mode::measuring; }
  bool is_queued() const { return mode_ == Mode::queued; }
  int threads() const { return threads_; }

  // work(stream) in the order of this stream: now, with this one; or later, by the thread of a
  // queued stream, with one that does each call at once. So what `work` refers to stays until then.
  // Where it throws there, what is queued behind it is left out, and who waits for it gets the
  // error.
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

  // CPU, not queued: body(task, thread) for each task in [0, tasks); see ThreadPool::run.
  void parallel_for(std::int64_t tasks, FunctionRef<void(std::int64_t task, int thread)> body);

  // Likewise: body(begin, end) over [0, n) in pieces of at least `grain`, or one piece.
  void parallel_ranges(std::int64_t n, std::int64_t grain,
                       FunctionRef<void(std::int64_t begin, std::int64_t end)> body);

  // `to` = `from`, of the same type and number of elements, in the order of this stream. A CUDA
  // stream copies between its device and pinned host memory in either direction, and on the device.
  void copy(Tensor to, ConstTensor from);

  // What a library keeps for this stream, such as its handle: made when it is first asked for,
  // destroyed with the stream. One for each type.
  class Kept {
   public:
    Kept() = default;
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    virtual ~Kept() = default;
  };
  template <class T>
  T& kept() {
    static constexpr char kType = 0;  // its address names the type
    auto& slot = kept_slot(&kType);
    if (!slot) slot = std::make_unique<T>();
    return static_cast<T&>(*slot);
  }

  Event record();                 // done when all work enqueued so far is done
  Event record_timed();           // and knows when that was
  void wait(const Event& event);  // later work waits for the event; the host does not
  void synchronize();             // the host waits; never inside a step
  CUstream_st* native() const;    // only for a CUDA stream

  // Gets a row of it, from now on; nothing: no longer.
  void set_timeline(Timeline* timeline) { timeline_ = timeline; }
  Timeline* timeline() const { return timeline_; }

  // Measures what this stream's time goes to, from now on; nothing: nobody does.
  void set_trace(Trace* trace) { trace_ = trace; }
  Trace* trace() const { return trace_; }

  // Is told what this stream is given, from now on; nothing: no longer. Not of a queued stream.
  void set_op_log(OpLog* log) { op_log_ = log; }
  OpLog* op_log() const { return op_log_; }

  // Whether an operator runs: what it calls itself is part of it. Returns what it was.
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
