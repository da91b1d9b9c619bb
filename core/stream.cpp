#include "core/stream.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/gpu.h"
#include "core/op_log.h"
#include "core/thread_pool.h"
#include "core/work_queue.h"

namespace lockstep {

// EventPool has the unused events of one CUDA stream.
class EventPool {
 public:
  EventPool(int device, bool timed) : device_(device), timed_(timed) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool() {
    for (auto* event : free_)
      gpu::destroy(event);
  }

  int device() const { return device_; }

  CUevent_st* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      ++made_;
      free_.reserve(made_);  // so that give_back() cannot fail
      return gpu::create_event(timed_);
    }
    auto* event = free_.back();
    free_.pop_back();
    return event;
  }
  void give_back(CUevent_st* event) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

 private:
  int device_;
  bool timed_;
  std::mutex mutex_;
  std::vector<CUevent_st*> free_;
  std::size_t made_ = 0;
};

Event::Event(Event&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      event_(std::exchange(other.event_, nullptr)),
      queue_(std::exchange(other.queue_, nullptr)),
      log_(std::exchange(other.log_, nullptr)),
      ticket_(other.ticket_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(event_, other.event_);
  std::swap(queue_, other.queue_);
  std::swap(log_, other.log_);
  std::swap(ticket_, other.ticket_);
  return *this;
}

Event::~Event() {
  if (pool_ != nullptr) pool_->give_back(event_);
}

// Selects the device first: a new thread uses device 0, where CUDA would allocate memory.
void Event::synchronize() const {
  if (queue_ != nullptr) return queue_->wait(ticket_);
  if (event_ == nullptr) return;
  gpu::use_again(pool_->device());
  gpu::synchronize(event_);
}

bool Event::is_done() const {
  if (queue_ != nullptr) return queue_->is_done(ticket_);
  if (event_ == nullptr) return true;
  gpu::use_again(pool_->device());
  return gpu::is_done(event_);
}

double Event::seconds_since(const Event& earlier) const {
  LOCKSTEP_CHECK(event_ != nullptr && earlier.event_ != nullptr,
                 "seconds_since() needs events of CUDA streams");
  return gpu::seconds_between(earlier.event_, event_);
}

struct Stream::State {
  explicit State(int threads) : pool(std::in_place, threads) {}
  State(const char* name, int threads) : queue(std::in_place, name, threads) {}
  State(CUstream_st* stream, int device)
      : cuda(stream), events(std::in_place, device, false), timed(std::in_place, device, true) {}
  ~State() {
    kept.clear();
    if (cuda != nullptr) gpu::destroy(cuda);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::optional<ThreadPool> pool;  // immediate CPU stream
  std::optional<WorkQueue> queue;  // queued CPU stream
  CUstream_st* cuda = nullptr;     // CUDA stream
  std::optional<EventPool> events, timed;
  std::map<const void*, std::unique_ptr<Kept>> kept;
};

Stream::Stream(Device device, const char* name, Mode mode, int threads, Priority priority)
    : device_(device), name_(name), mode_(mode), threads_(threads) {
  LOCKSTEP_CHECK(mode != Mode::queued || !is_cuda(), "stream ", name,
                 ": queued mode needs a CPU stream");
  if (mode == Mode::measuring) return;
  if (is_cuda()) {
    gpu::use(device.index);
    state_ =
        std::make_unique<State>(gpu::create_stream(priority == Priority::urgent), device.index);
  } else if (mode == Mode::queued) {
    state_ = std::make_unique<State>(name, threads);
  } else {
    state_ = std::make_unique<State>(threads);
  }
}

Stream::~Stream() = default;

void Stream::parallel_for(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body) {
  LOCKSTEP_CHECK(state_ != nullptr, "stream ", name_, " is a measuring stream and runs no tasks");
  LOCKSTEP_CHECK(!is_cuda(), "stream ", name_, " is a CUDA stream and has no threads");
  LOCKSTEP_CHECK(!is_queued(), "stream ", name_, " is queued; use enqueue() instead");
  state_->pool->run(tasks, body);
}

void Stream::parallel_ranges(std::int64_t n, std::int64_t grain,
                             FunctionRef<void(std::int64_t, std::int64_t)> body) {
  // Four pieces per thread balance a CPU that is busy with other work.
  const auto pieces =
      std::clamp<std::int64_t>(n / std::max<std::int64_t>(grain, 1), 1, std::int64_t{4} * threads_);
  parallel_for(pieces, [&](std::int64_t i, int) {
    const auto begin = n * i / pieces, end = n * (i + 1) / pieces;
    if (begin < end) body(begin, end);
  });
}

void Stream::copy(Tensor to, ConstTensor from) {
  LOCKSTEP_CHECK(to.dtype == from.dtype && to.elements() == from.elements(), "cannot copy ",
                 lockstep::name(from.dtype), " ", from.shape, " to ", lockstep::name(to.dtype), " ",
                 to.shape);
  Op op = memory_op("copy", to.dtype, {to, from});
  if (!(to.device == from.device)) op = transfer_op(to);
  const OpLog::Call call(*this, op);
  if (is_measuring() || to.bytes() == 0) return;
  if (is_cuda()) return gpu::copy(to.data, from.data, to.bytes(), state_->cuda);
  enqueue([to, from](Stream&) {
    std::memmove(to.data, from.data, static_cast<std::size_t>(to.bytes()));
  });
}

void Stream::enqueue(void (*call)(const void*, Stream&), const void* work, std::size_t bytes) {
  state_->queue->give(call, work, bytes);
}

std::unique_ptr<Stream::Kept>& Stream::kept_slot(const void* type) {
  LOCKSTEP_CHECK(state_ != nullptr, "stream ", name_,
                 " is a measuring stream and keeps no objects");
  return state_->kept[type];
}

Event Stream::record(EventPool& pool) {
  Event event(&pool, pool.take());
  gpu::record(event.event_, state_->cuda);
  return event;
}

Event Stream::record() {
  if (is_queued()) return {&*state_->queue, state_->queue->given()};
  if (is_measuring() && op_log_ != nullptr) return {op_log_, op_log_->record(*this)};
  if (!is_cuda() || is_measuring()) return {};
  return record(*state_->events);
}

Event Stream::record_timed() {
  if (!is_cuda() || is_measuring()) return {};
  return record(*state_->timed);
}

void Stream::wait(const Event& event) {
  if (is_measuring()) {
    if (op_log_ != nullptr && event.log_ == op_log_) op_log_->wait(*this, event.ticket_);
    return;
  }
  if (is_queued() && event.queue_ != nullptr)
    enqueue([queue = event.queue_, ticket = event.ticket_](Stream&) { queue->wait(ticket); });
  else if (is_cuda() && event.event_ != nullptr)
    gpu::wait(state_->cuda, event.event_);
  else
    event.synchronize();  // an immediate stream runs its next work in the caller
}

void Stream::synchronize() {
  if (is_queued()) return record().synchronize();
  if (is_cuda() && !is_measuring()) gpu::synchronize(state_->cuda);
}

CUstream_st* Stream::native() const {
  LOCKSTEP_CHECK(is_cuda() && state_ != nullptr, "stream ", name_, " is not a CUDA stream");
  return state_->cuda;
}

}  // namespace lockstep
