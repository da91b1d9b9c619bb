// HostState: slices of a run's state where files are read and written: on the host. On the CPU they
// are the state itself; of a GPU's, copies in pinned memory.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "core/mirror.h"

namespace lockstep {

class HostState {
 public:
  // `slices`: of tensors of the stream's device. The stream outlives this.
  HostState(std::vector<StateSlice> slices, Stream& stream);

  const std::vector<StateSlice>& slices() const { return slices_; }

  // The host waits for both.
  void fetch() const;  // as the device has it now
  void send() const;   // to the device

 private:
  Stream& stream_;
  std::vector<StateSlice> slices_;
  std::optional<Arena> pinned_;
  std::vector<Mirror> mirrors_;
};

}  // namespace lockstep
