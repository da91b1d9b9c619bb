// Stream and Event: in-order execution on one device. A CPU stream runs each call at once, on its
// own threads; a CUDA stream queues it.
#pragma once

#include <cstdint>
#include <memory>

#include "core/function_ref.h"
#include "core/tensor.h"

struct CUstream_st;  // CUDA's own handle types, so that host code needs no CUDA header
struct CUevent_st;

namespace lockstep {

class EventPool;

// A point in a stream's work. Default: already done. (All work of a CPU stream is done when the
// call that made it returns.) Drawn from its stream's pool and given back on destruction, so that a
// step creates none; it must not outlive its stream. Any thread may ask it.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  void synchronize() const;                          // the host waits
  double seconds_since(const Event& earlier) const;  // both done, of record_timed() of CUDA streams

 private:
  friend class Stream;
  Event(EventPool* pool, CUevent_st* event) : pool_(pool), event_(event) {}
  EventPool* pool_ = nullptr;
  CUevent_st* event_ = nullptr;
};

class Stream {
 public:
  // measuring: run nothing; an operator checks its arguments and returns.
  enum class Mode : std::uint8_t { immediate, measuring };

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
  int threads() const { return threads_; }

  // CPU: body(task, thread) for each task in [0, tasks); see ThreadPool::run.
  void parallel_for(std::int64_t tasks, FunctionRef<void(std::int64_t task, int thread)> body);

  // CPU: body(begin, end) over [0, n) in pieces of at least `grain`, or one piece.
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

 private:
  std::unique_ptr<Kept>& kept_slot(const void* type);
  Event record(EventPool& pool);

  Device device_;
  const char* name_;
  Mode mode_;
  int threads_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
