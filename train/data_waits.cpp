#include "train/data_waits.h"

#include <utility>

namespace lockstep {

void DataWaits::begin() {
  begin_ = stream_.record_timed();
}

void DataWaits::end(double host_seconds) {
  if (host_seconds <= 0) return;
  if (stream_.is_cuda())
    waits_.push_back({std::move(begin_), stream_.record_timed()});
  else
    host_seconds_ += host_seconds;
}

double DataWaits::take() {
  double seconds = std::exchange(host_seconds_, 0);
  for (; !waits_.empty() && waits_.front().begin.is_done(); waits_.pop_front()) {
    const auto& [begin, end] = waits_.front();
    end.synchronize();
    seconds += end.seconds_since(begin);
  }
  return seconds;
}

}  // namespace lockstep
