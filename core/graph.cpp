#include "core/graph.h"

#include <utility>

#include "core/gpu.h"

namespace lockstep {
namespace {

// Capture ends with its scope, also on exceptions, because a stream in capture runs no work.
class Capture {
 public:
  explicit Capture(CUstream_st* stream) : stream_(stream) { gpu::begin_capture(stream); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (stream_ != nullptr) gpu::abandon_capture(stream_);
  }
  CUgraphExec_st* end() { return gpu::end_capture(std::exchange(stream_, nullptr)); }

 private:
  CUstream_st* stream_;
};

}  // namespace

void Graph::Destroy::operator()(CUgraphExec_st* graph) const noexcept {
  gpu::destroy(graph);
}

void Graph::run(Stream& stream, FunctionRef<void()> work) {
  if (!captured_) {
    Capture capture(stream.native());
    work();
    captured_.reset(capture.end());
  }
  gpu::launch(captured_.get(), stream.native());
}

}  // namespace lockstep
