// DataStalls measures how long a stream was idle because data were late. Steps are enqueued ahead
// on a GPU, so a wait of the host while the GPU still computes costs nothing.
#pragma once

#include <deque>

#include "core/stream.h"

namespace lockstep {

class DataStalls {
 public:
  explicit DataStalls(Stream& stream) : stream_(stream) {}  // must outlive this

  // Call begin() before the host asks for data, and end() when it has them, with its waiting time.
  void begin();
  void end(double host_seconds);

  // Idle seconds of the waits that ended since the last call; on a GPU, of those that the GPU has
  // passed. The host does not wait for the GPU.
  double take();

 private:
  struct Wait {
    Event begin, end;  // with no work between them
  };
  Stream& stream_;
  Event begin_;
  std::deque<Wait> waits_;   // on a CUDA stream
  double host_seconds_ = 0;  // on other streams
};

}  // namespace lockstep
