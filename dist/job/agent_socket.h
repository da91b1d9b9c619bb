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

struct AgentPlace {
  int rank = 0, ranks = 1, local_rank = 0;
  std::vector<std::string> addresses{};  // of rank 0's control server
  std::uint16_t port = 0;
  std::string secret{};     // 64 hexadecimal digits
  bool takes_over = false;  // an earlier start of this job ended; the lock of the run may be stale

  std::string dump() const;  // one line
  static AgentPlace parse(const std::string& line);
};

// The place that the agent passed; nullopt: no agent started this process. Reads it once.
// Throws ConfigError if LOCKSTEP_AGENT is no such socket.
const std::optional<AgentPlace>& place_from_agent();

// A rank's last words. Reports add up: the last error counts, and all hosts. Without an agent, a
// report does nothing.
struct RankReport {
  std::string error{};
  std::vector<std::string> lost{};    // hosts whose ranks died or stalled
  std::vector<std::string> faulty{};  // hosts whose weights or products are wrong

  std::string dump() const;
  static RankReport parse(const std::string& line);
};
void report_to_agent(const RankReport& report) noexcept;

// Texts as a list in JSON, and back.
Json json_list(const std::vector<std::string>& texts);
std::vector<std::string> texts_at(const Json& object, const char* key);

}  // namespace lockstep
