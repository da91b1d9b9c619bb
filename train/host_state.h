// HostState: slices of a run's state where files are read and written: on the host. On the CPU they
// are the state itself; of a GPU's, copies in pinned memory of what is not there already.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "core/mirror.h"

namespace lockstep {

class HostState {
 public:
  // Waits for the stream, which outlives this: the slices may then be written, until work on the
  // stream uses what they are of.
  HostState(std::vector<StateSlice> slices, Stream& stream);
  static std::int64_t pinned_bytes(const std::vector<StateSlice>& slices);  // that it takes

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
