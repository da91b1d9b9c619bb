// HostStaging gives host access to slices of a run's state, for reading and writing files. A slice
// is the state itself, or a staging copy of it (in pinned memory for a GPU). Slices of a GPU
// without a staging copy share one bounce buffer, one at a time.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

class HostStaging {
 public:
  // The slices that have staging copies: none; those that this rank saves, so that training
  // continues during a save; or all on a GPU. In a GPU run, state kept on the host never has one.
  enum class Copies : std::uint8_t { none, owned, of_gpu };

  // Waits for the stream, which must outlive this. Throws ConfigError if the copies do not fit in
  // memory.
  HostStaging(std::vector<StateSlice> slices, Stream& stream, Copies copies = Copies::of_gpu);
  HostStaging(const HostStaging&) = delete;
  HostStaging& operator=(const HostStaging&) = delete;

  // Bytes of host memory required in a run on `device`; the memory is pinned on a GPU.
  static std::int64_t bytes(const std::vector<StateSlice>& slices, Device device, Copies copies);

  // With Copies::none, slices in the bounce buffer are cut into pieces of at most this many bytes.
  static constexpr std::int64_t kTurnBytes = std::int64_t{16} << 20;
  const std::vector<StateSlice>& slices() const { return slices_; }
  // Whether a save of this rank reads a part of the state itself. Then it must end before the state
  // changes.
  bool shares_state() const { return shares_; }

  // Copies the state as of the work that the stream has so far. The copy overlaps the stream's
  // later work, which may change the state only after taken(). The slices hold the copy until the
  // next call.
  void take();
  Event taken() { return copying_.record(); }
  // Call prepare_to_read() before files are read into the slices. send() then copies the slices to
  // the state.
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
  Stream copying_;  // last member, because its work uses the others
};

}  // namespace lockstep
