// DataWaits: the seconds for which a stream had nothing to do because data were late. A GPU is
// given steps ahead: where its host waits for data while it still computes, nothing is lost.
#pragma once

#include <deque>

#include "core/stream.h"

namespace lockstep {

class DataWaits {
 public:
  explicit DataWaits(Stream& stream) : stream_(stream) {}  // which outlives it

  // Before the host asks for data, and when it has them: it waited so long in between.
  void begin();
  void end(double host_seconds);

  // Of the waits that are over since the last call: on a GPU of those that are behind it. The host
  // does not wait for that.
  double take();

 private:
  struct Wait {
    Event begin, end;  // with no work between them
  };
  Stream& stream_;
  Event begin_;
  std::deque<Wait> waits_;   // of a CUDA stream
  double host_seconds_ = 0;  // of others
};

}  // namespace lockstep
