// HostState: slices of a run's state where files are read and written: on the host. They are the
// state itself, or copies of it, of a GPU's in pinned memory; slices of a GPU that have no copy
// take turns in one place.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

class HostState {
 public:
  // Of what there are copies: of nothing; of what this rank saves, so that training goes on while
  // it does; of all that is on a GPU. Never of a GPU's state that is kept on the host.
  enum class Copies : std::uint8_t { none, owned, of_gpu };

  // Waits for the stream, which outlives this. Throws ConfigError where there is no memory for the
  // copies.
  HostState(std::vector<StateSlice> slices, Stream& stream, Copies copies = Copies::of_gpu);
  HostState(const HostState&) = delete;
  HostState& operator=(const HostState&) = delete;

  // That it takes of the host's memory, pinned where there is a GPU, in a run on `device`.
  static std::int64_t bytes(const std::vector<StateSlice>& slices, Device device, Copies copies);

  // With Copies::none, those that take turns are cut into pieces of at most so many bytes.
  static constexpr std::int64_t kTurnBytes = std::int64_t{16} << 20;
  const std::vector<StateSlice>& slices() const { return slices_; }
  // Whether what this rank saves is, or is partly, read from the state itself: a save must end
  // before the state changes.
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
  void add_turns(const StateSlice& slice, const Tensor& place, std::int64_t most_bytes);
  void copy_now(Tensor to, ConstTensor from);

  Stream& stream_;
  std::vector<StateSlice> slices_;
  std::optional<Arena> memory_;
  std::vector<Copy> copies_;
  bool shares_ = false;
  Stream copying_;  // whose work uses all that
};

}  // namespace lockstep
