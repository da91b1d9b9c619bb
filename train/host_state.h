// HostState: slices of a run's state where files are read and written: on the host. Of a GPU's they
// are copies in pinned memory of what is not there already; on the CPU the state itself, or, where
// it is saved while training goes on, copies of what this rank saves.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

class HostState {
 public:
  // What on the CPU is copied; all is of a GPU, but what is on the host.
  enum class Copies : std::uint8_t { none, owned };

  // Waits for the stream, which outlives this. Throws ConfigError where there is no memory for the
  // copies.
  HostState(std::vector<StateSlice> slices, Stream& stream, Copies copies = Copies::none);
  HostState(const HostState&) = delete;
  HostState& operator=(const HostState&) = delete;

  // That it takes of the host's memory, pinned where there is a GPU.
  static std::int64_t bytes(const std::vector<StateSlice>& slices, Copies copies);

  const std::vector<StateSlice>& slices() const { return slices_; }
  // Whether what this rank saves is, or is partly, the state itself: a save must end before the
  // state changes.
  bool shares_state() const { return shares_; }

  // Copies the state as it is behind all work of the stream so far, beside the stream's later work,
  // which may change it once that is done. The slices hold it then, until the next call.
  void take();
  Event taken() { return copying_.record(); }
  // Before files are read into the slices, and after it: the state then is what they hold.
  void prepare_to_read();
  void send();

 private:
  struct Copy {
    Tensor state, here;
  };

  Stream& stream_;
  Stream copying_;
  std::vector<StateSlice> slices_;
  std::optional<Arena> memory_;
  std::vector<Copy> copies_;
  bool shares_ = false;
};

}  // namespace lockstep
