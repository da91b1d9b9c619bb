// FailureDetector derives from the heartbeats of all ranks which of them are dead or stalled, and
// which wait for others. Rank 0 has one. It is pure: callers pass the time.
//
//   dead     closed its connection without a goodbye, or sent nothing for `missed` intervals
//   failed   reported an error
//   stalled  sends beats, but made no progress for `stall`, or 10 x `stall` before the first step.
//            Ranks that wait for a stalled rank make no progress either. So the verdict names those
//            with the fewest collectives, and only if they made no progress themselves.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dist/collective_ring.h"
#include "dist/job/handshake.h"

namespace lockstep {

struct Timing {
  Milliseconds interval{1000};  // between two beats
  int missed = 5;               // intervals without a beat after which a rank counts as dead
  Milliseconds stall{50'000};   // all ranks have then ended within a minute; 0: stalls are ignored
};

struct Beat {
  Activity activity;
  Milliseconds still{0};  // time since `progress` changed
  bool watched = false;   // it reported a collective; stalls count from the first such rank on
};

// Verdict: the reason to abort the job, in one sentence, and the exit code.
struct Verdict {
  std::string text{};
  int exit_code = 75;   // a failed rank's code, otherwise 75 (start again)
  bool is_own = false;  // concluded by this rank, because rank 0 stopped answering
  // Ranks that died, stopped answering or stalled; at the server, and if is_own.
  std::vector<int> lost = {};

  friend bool operator==(const Verdict&, const Verdict&) = default;
};

Bytes encode(const Beat& beat);
Beat decode_beat(std::span<const std::byte> body);  // throws DataError if it is damaged

class FailureDetector {
 public:
  FailureDetector(int ranks, const Timing& timing);

  void introduce(int rank, const Peer& peer);
  void joined(int rank, Deadline now);  // the rank's heartbeat starts
  void beat(int rank, const Beat& beat, Deadline now);
  // The rank's connection closed, which is expected after left() and failed(). Returns whether it
  // was not, so that there is a verdict.
  bool closed(int rank);
  void left(int rank);  // the rank sent a goodbye
  void failed(int rank, const std::string& message, int exit_code);
  // The watching process was stopped for `time`, which counts against no rank.
  void slept(Milliseconds time, Deadline now);

  // Returns nullopt while the job may continue.
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
  std::string deaths(Deadline now, Milliseconds most_silence, std::vector<int>& lost) const;
  std::string stalls(std::vector<int>& lost) const;
  Milliseconds limit(const Activity& activity) const;

  Timing timing_;
  std::vector<Rank> ranks_;
};

}  // namespace lockstep
