// Watch: what rank 0 makes of the heartbeats of all ranks: who is dead, who stalls, who waits for
// whom. Pure: it is told the time.
//
//   dead     closed its connection without a goodbye, or was silent for `missed` intervals
//   failed   said so itself
//   stalled  beats, but its progress stood still for `stall`, ten times that before the first step.
//            Ranks that wait for it stand still too: blamed are those that are furthest behind in
//            the sequence of collectives, and only when they stand still themselves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/collective_ring.h"
#include "dist/job/handshake.h"

namespace lockstep {

struct Timing {
  Milliseconds interval{1000};  // between two beats
  int missed = 5;               // silent for that many intervals: dead
  Milliseconds stall{50'000};   // so that all have ended a minute after; 0: not watched
};

struct Beat {
  Activity activity;
  Milliseconds still{0};  // for how long `progress` has not changed
  bool watched = false;   // something was reported: stalls count from the first report of any rank
};

// Why the job has to end, in one sentence, and the exit code that fits.
struct Verdict {
  std::string text{};
  int exit_code = 75;   // a failed rank's own, else: try again
  bool is_own = false;  // what this rank concluded, as rank 0 is silent

  friend bool operator==(const Verdict&, const Verdict&) = default;
};

Bytes encode(const Beat& beat);
Beat decode_beat(std::span<const std::byte> body);  // DataError where it is none

class Watch {
 public:
  Watch(int ranks, const Timing& timing);

  void introduce(int rank, const Peer& peer);
  void joined(int rank, Deadline now);  // its heartbeat begins
  void beat(int rank, const Beat& beat, Deadline now);
  void closed(int rank);  // its connection; expected of one that has left or failed
  void left(int rank);    // it said goodbye
  void failed(int rank, const std::string& message, int exit_code);
  void slept(Milliseconds time, Deadline now);  // the watch itself: nobody is to blame for that

  // Nothing while all is well.
  std::optional<Verdict> verdict(Deadline now) const;

 private:
  enum class State { absent, beating, closed, left, failed };
  struct Rank {
    State state = State::absent;
    Peer peer{};
    Deadline heard{};
    Beat beat{};
    std::string message{};
    int exit_code = 0;
  };
  std::string describe(int rank) const;
  std::string describe_place(const Rank& at) const;
  std::string waiting_for(const Rank& at) const;
  std::string deaths(Deadline now, Milliseconds most_silence) const;
  std::string stalls() const;
  Milliseconds limit(const Activity& activity) const;

  Timing timing_;
  std::vector<Rank> ranks_;
};

}  // namespace lockstep
