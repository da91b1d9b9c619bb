#include "core/stream.h"

#include <algorithm>

#include "core/thread_pool.h"

namespace lockstep {

struct Stream::State {
  explicit State(int threads) : pool(threads) {}
  ThreadPool pool;
};

Stream::Stream(Device device, const char* name, Mode mode, int threads)
    : device_(device), name_(name), mode_(mode), threads_(threads) {
  LOCKSTEP_CHECK(device.kind == Device::Kind::cpu, "stream ", name,
                 ": this build has no CUDA backend; use --device cpu");
  if (mode == Mode::immediate) state_ = std::make_unique<State>(threads);
}

Stream::~Stream() = default;

void Stream::parallel_for(std::int64_t tasks, FunctionRef<void(std::int64_t, int)> body) {
  LOCKSTEP_CHECK(state_ != nullptr, "stream ", name_, " measures; it runs nothing");
  state_->pool.run(tasks, body);
}

void Stream::parallel_ranges(std::int64_t n, std::int64_t grain,
                             FunctionRef<void(std::int64_t, std::int64_t)> body) {
  // Four pieces a thread even out a processor that is busy with something else.
  const auto pieces =
      std::clamp<std::int64_t>(n / std::max<std::int64_t>(grain, 1), 1, std::int64_t{4} * threads_);
  parallel_for(pieces, [&](std::int64_t i, int) {
    const auto begin = n * i / pieces, end = n * (i + 1) / pieces;
    if (begin < end) body(begin, end);
  });
}

Event Stream::record() {
  return {};
}
void Stream::wait(const Event&) {}
void Stream::synchronize() {}

CUstream_st* Stream::native() const {
  LOCKSTEP_FAIL("stream ", name_, " is not a CUDA stream");
}

}  // namespace lockstep
