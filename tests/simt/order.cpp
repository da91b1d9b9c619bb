#include "tests/simt/order.h"

#include <algorithm>

namespace simt {

void merge(Clock& into, const Clock& from) {
  for (const auto& [stream, number] : from) {
    auto& n = into[stream];
    n = std::max(n, number);
  }
}

bool Order::Work::is_in(const Clock& clock) const {
  const auto found = clock.find(stream);
  return stream == nullptr || (found != clock.end() && number <= found->second);
}

void Order::begin(const void* stream) {
  auto& clock = streams_[stream];
  merge(clock, host_);
  ++clock[stream];
  running_ = stream;
}

void Order::threads_begin(std::uint32_t first) {
  while (!works_.empty() && works_.front().is_in(host_))
    works_.pop_front();
  first_unordered_ = first;
  if (running_ != nullptr) {
    const auto& clock = streams_[running_];
    const auto unordered = std::find_if(works_.begin(), works_.end(),
                                        [&](const Work& work) { return !work.is_in(clock); });
    if (unordered != works_.end()) first_unordered_ = unordered->first_thread;
  }
  works_.push_back({first, running_, running_ == nullptr ? 0 : streams_[running_][running_]});
}

bool Order::is_ordered(std::uint32_t thread) const {
  const auto next =
      std::upper_bound(works_.begin(), works_.end(), thread,
                       [](std::uint32_t t, const Work& work) { return t < work.first_thread; });
  return next == works_.begin() || std::prev(next)->is_in(streams_.at(running_));
}

Order& order() {
  static Order one;
  return one;
}

}  // namespace simt
