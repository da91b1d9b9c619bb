#include "train/step/data_stalls.h"

#include <utility>

namespace lockstep {

void DataStalls::begin() {
  begin_ = stream_.record_timed();
}

void DataStalls::end(double host_seconds) {
  if (host_seconds <= 0) return;
  if (stream_.is_cuda())
    waits_.push_back({std::move(begin_), stream_.record_timed()});
  else
    host_seconds_ += host_seconds;
}

double DataStalls::take() {
  double seconds = std::exchange(host_seconds_, 0);
  for (; !waits_.empty() && waits_.front().end.is_done(); waits_.pop_front())
    seconds += waits_.front().end.seconds_since(waits_.front().begin);
  return seconds;
}

}  // namespace lockstep
