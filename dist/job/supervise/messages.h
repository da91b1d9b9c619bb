// Messages between the agents of a supervised run (launch/supervise) and their leader, and the
// records by which agents find it. Each is a JSON object in a frame (dist/job/frame.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dist/job/agent_socket.h"

namespace lockstep {

// The place of a host in an attempt. An attempt is one start of the ranks of a run. No message
// lists the hosts of an attempt: each host gets a message, so all lists together would have hosts^2
// names.
struct HostPlace {
  std::int64_t attempt = 0;  // 0: none
  int number = 0;            // ranks number * slots to number * slots + slots - 1 are here
  int hosts = 1;             // of the attempt
  friend bool operator==(const HostPlace&, const HostPlace&) = default;
};
Json to_json(const HostPlace& place);
HostPlace host_place(const Json& json);  // throws DataError

// How a rank ended.
struct RankEnd {
  int rank = 0;
  int exit_code = 0;                  // 128 + n: signal n
  bool unwatched = false;             // no agent saw its exit code; exit_code is 75
  bool out_of_memory = false;         // the kernel killed a process because memory was short
  std::string error{};                // the last error of the rank; "": it reported none
  std::vector<std::string> lost{};    // hosts whose ranks it knows to be dead or stalled
  std::vector<std::string> faulty{};  // hosts whose weights are wrong
  std::int64_t step = 0;              // that it computed, if it reports it; 0: unknown
  std::string samples{};              // of that step, in words; "": unknown
  bool is_verdict = false;            // because of an error of another rank
  bool is_common = false;             // every rank has this error at this step

  friend bool operator==(const RankEnd&, const RankEnd&) = default;
};

// From an agent.
struct Join {
  std::string id{};  // random, of this process
  std::string host{};
  std::string job{};    // of the launcher; all agents of a run have the same
  int slots = 1;        // ranks of each host
  HostPlace running{};  // of the ranks that run here, or whose ends it reports
  friend bool operator==(const Join&, const Join&) = default;
};
struct AgentBeat {
  friend bool operator==(const AgentBeat&, const AgentBeat&) = default;
};
struct Ready {  // answers Prepare
  std::int64_t attempt = 0;
  std::string fault{};                   // why this host cannot start ranks; "": it can
  std::vector<std::string> addresses{};  // of the host
  std::uint16_t port = 0;                // for the control server of rank 0, if it starts here
  friend bool operator==(const Ready&, const Ready&) = default;
};
struct Ended {
  std::int64_t attempt = 0;
  std::vector<RankEnd> ranks{};  // ended since the last message, except those it killed
  std::vector<int> xids{};       // errors of GPUs of this host, from the kernel's log
  bool all = false;              // no rank of the attempt is left on this host
  friend bool operator==(const Ended&, const Ended&) = default;
};

// Hosts of stragglers, as a rank of this host reported them.
struct Slow {
  std::vector<std::string> hosts{};
  friend bool operator==(const Slow&, const Slow&) = default;
};
// A user or a scheduler asks this host to end the run, or to leave it.
struct AskStop {
  std::string why{};
  bool leaves = false;  // the run continues without this host if enough others are left
  friend bool operator==(const AskStop&, const AskStop&) = default;
};

// Exit code of an agent that leaves the run alone, as after SIGTERM.
inline constexpr int kLeft = 128 + 15;

// From the leader.
struct Welcome {  // answers Join and each AgentBeat
  std::int64_t term = 0;
  std::int64_t judged = 0;  // newest attempt whose end the leader has judged
  friend bool operator==(const Welcome&, const Welcome&) = default;
};
struct Prepare {
  std::int64_t attempt = 0;
  bool check = false;  // check this host first
  bool leads = false;  // rank 0 starts here
  friend bool operator==(const Prepare&, const Prepare&) = default;
};
struct Start {
  HostPlace place{};
  // An earlier attempt has ended, so rank 0 ignores its lock if a file server still holds it.
  bool takes_over = false;
  std::vector<std::string> addresses{};  // of the control server of rank 0
  std::uint16_t port = 0;
  RestartSeconds restart{};
  std::int64_t noted_step = 0;  // ranks report samples of this step and the next one; 0: none
  std::int64_t skip_step = 0;   // train leaves out the data of this step; 0: none
  friend bool operator==(const Start&, const Start&) = default;
};
struct Stop {
  std::int64_t attempt = 0;
  bool save = false;  // the ranks save and stop; otherwise they are killed
  friend bool operator==(const Stop&, const Stop&) = default;
};
// The agent ends: the run is over, or this host may not take part.
struct Over {
  int exit_code = 0;
  std::string why{};
  bool keeps_ranks = false;  // another agent of this host watches them
  friend bool operator==(const Over&, const Over&) = default;
};

using FromAgent = std::variant<Join, AgentBeat, Ready, Ended, AskStop, Slow>;
using FromLeader = std::variant<Welcome, Prepare, Start, Stop, Over>;

std::string encode(const FromAgent& message);
std::string encode(const FromLeader& message);
// Throw DataError if the text is not such a message.
FromAgent decode_from_agent(const std::string& text);
FromLeader decode_from_leader(const std::string& text);

// RUN/supervise/term-00000001.json: the leader of this term.
struct Term {
  std::int64_t number = 0;  // 0: no agent has led this run yet
  std::string id{};         // of the leader's agent
  std::string job{};        // as Join::job
  std::string host{};
  std::vector<std::string> addresses{};
  std::uint16_t port = 0;

  std::string dump() const;
  static Term parse(const std::string& text, const std::string& what);
};

}  // namespace lockstep
