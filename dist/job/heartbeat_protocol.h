// HeartbeatProtocol decides what a rank's heartbeat does: when it sends a beat, and when the rank
// must end. It has no socket, thread or clock: callers pass bytes and times, and send unsent().
// Heartbeat runs it on a socket, tests/sim on a simulated network.
#pragma once

#include "core/function_ref.h"
#include "dist/job/failure_detector.h"

namespace lockstep {

class HeartbeatProtocol {
 public:
  HeartbeatProtocol(const Timing& timing, Deadline now);

  // Bytes of rank 0 arrived. Returns the verdict that ends this rank, if there is one. Throws an
  // Error if they are damaged or if rank 0 rejects this rank: pass it to lost().
  std::optional<Verdict> bytes(std::span<const std::byte> arrived, Deadline now);
  // To be called at due(), after bytes() of all that has arrived, because this process may have
  // been stopped. Appends a beat to unsent() and returns the verdict if rank 0 stopped answering.
  std::optional<Verdict> time(Deadline now, FunctionRef<Activity()> ask);
  Deadline due() const { return next_; }

  // This rank's own conclusion that rank 0 is lost: " died", " is unreachable: REASON". Rank 0, if
  // alive, and all other ranks receive it too, by a last message in unsent().
  Verdict lost(const std::string& what);
  void leave(const Frame& last_word);  // appends the last message of this rank

  std::span<const std::byte> unsent() const { return out_; }
  void sent(std::size_t count);  // of unsent()

 private:
  void beat(Deadline now, const Activity& activity);

  Timing timing_;
  FrameReader reader_;
  Bytes out_;
  Peer rank_0_{};
  Deadline heard_, next_;
  Activity activity_{};
  Deadline changed_;  // when activity_.progress changed
};

}  // namespace lockstep
