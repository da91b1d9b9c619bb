// AgentSocket connects a rank to the agent that started it (launch/supervise). The agent passes an
// open socket, whose number is in LOCKSTEP_AGENT. The rank reads its place there, and reports how
// it ends. The secret of the job thus appears neither in variables nor in arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace lockstep {

// Time that a supervised restart took before its ranks were started, in seconds.
struct RestartSeconds {
  double judge = 0;    // from the first rank that ended to the decision
  double prepare = 0;  // from there to the start of the ranks
  friend bool operator==(const RestartSeconds&, const RestartSeconds&) = default;
};

struct AgentPlace {
  int rank = 0, ranks = 1, local_rank = 0;
  std::vector<std::string> addresses{};  // of rank 0's control server
  std::uint16_t port = 0;
  std::string secret{};     // 64 hexadecimal digits
  bool takes_over = false;  // an earlier start of this job ended; the lock of the run may be stale
  RestartSeconds restart{};
  std::int64_t noted_step = 0;  // report the samples of this step and the next one; 0: of none

  std::string dump() const;  // one line
  static AgentPlace parse(const std::string& line);
};

// The place that the agent passed; nullopt: no agent started this process. Reads it once.
// Throws ConfigError if LOCKSTEP_AGENT is no such socket.
const std::optional<AgentPlace>& place_from_agent();

// A report of a rank. Reports add up: the last error counts, and all hosts. Without an agent, a
// report does nothing.
struct RankReport {
  std::string error{};
  std::vector<std::string> lost{};    // hosts whose ranks died or stalled
  std::vector<std::string> faulty{};  // hosts whose weights are wrong
  std::vector<std::string> slow{};    // stragglers, while the rank trains
  std::int64_t step = 0;              // that the rank computes, see AgentPlace::noted_step
  std::string samples{};              // of this step, in words
  bool is_verdict = false;            // it ends because of an error of another rank
  bool is_common = false;             // every rank has this error at this step

  std::string dump() const;
  static RankReport parse(const std::string& line);
};
void report_to_agent(const RankReport& report) noexcept;

// Values in JSON, and back.
Json to_json(const RestartSeconds& restart);
RestartSeconds restart_at(const Json& object, const char* key);
Json json_list(const std::vector<std::string>& texts);
std::vector<std::string> texts_at(const Json& object, const char* key);

}  // namespace lockstep
