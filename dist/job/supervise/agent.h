// Agent runs on each host of a supervised run. It finds the leader or becomes it, starts and kills
// the ranks of its host for the leader, and reports how they ended. It is pure, as Leader is.
//
// The agent that claimed the newest term leads. A claim creates a file in RUN/supervise, which only
// one process can do. The leader changes another file there twice a second. An agent claims the
// next term if it cannot reach the leader for `patience`, and that file did not change for as long.
// So a leader that is alive keeps its term, even if agents cannot reach it. The ranks never depend
// on the leader.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "dist/job/socket.h"
#include "dist/job/supervise/messages.h"

namespace lockstep {

struct AgentOptions {
  Join join;  // who it is
  Milliseconds beat{500};
  Milliseconds look{250};  // between two reads of the records, without a leader
  Milliseconds patience{2'000};
  Milliseconds alone{20'000};  // without a leader; then it acts on a request to stop by itself
};

// The records in RUN/supervise, as an agent reads them.
struct Records {
  Term newest{};
  std::string alive{};   // changes while the leader lives; "over": it ended the run
  int exit_code = 0;     // of the run, if it is over
  bool readable = true;  // false: storage did not answer
};

// Actions.
struct Look {};     // answer with Agent::looked()
struct ClaimTerm {  // answer with Agent::claimed(); a new leader then listens
  std::int64_t number;
};
struct ConnectTo {  // answer with Agent::connected() or disconnected()
  Term term;
};
struct Disconnect {};
struct SendToLeader {
  FromAgent message;
};
struct CheckHost {  // answer with Agent::checked()
  Prepare prepare;
};
struct StartRanks {
  Start start;
};
struct StopRanks {
  bool save;
};
struct EndAgent {
  int exit_code;
  std::string why;
};
using AgentAction = std::variant<Look, ClaimTerm, ConnectTo, Disconnect, SendToLeader, CheckHost,
                                 StartRanks, StopRanks, EndAgent>;
using AgentActions = std::vector<AgentAction>;

class Agent {
 public:
  Agent(AgentOptions options, Deadline now);

  AgentActions looked(const Records& records, Deadline now);
  AgentActions claimed(bool won, Deadline now);
  AgentActions connected(Deadline now);
  AgentActions disconnected(Deadline now);
  AgentActions message(const FromLeader& message, Deadline now);
  AgentActions checked(const Ready& ready, Deadline now);
  // Ranks of this host ended; `all`: none is left.
  AgentActions ended(const Ended& ended, Deadline now);
  // A rank of this host reported stragglers.
  AgentActions slow(const Slow& slow, Deadline now);
  // A user or a scheduler asks this host to end the run or to leave it.
  AgentActions stop(const AskStop& ask, Deadline now);
  AgentActions time(Deadline now);

 private:
  enum class Link : std::uint8_t { none, looking, claiming, connecting, joined };
  void send(FromAgent message);
  void lose_leader(Deadline now);
  void stop_alone(Deadline now);
  void end(const AskStop& ask);

  AgentOptions options_;
  Link link_ = Link::none;
  HostPlace running_;
  std::int64_t prepared_ = 0;
  Term term_{};          // newest that it knows
  std::string alive_{};  // as last seen, and when it changed
  Deadline changed_, reached_, next_look_, next_beat_, next_stop_{};
  bool has_joined_ = false;
  std::int64_t asked_over_ = 0;  // the term whose leader it tried to reach after the run's end
  // How the ranks of the newest attempt ended. Kept until a leader has judged the attempt, because
  // the leader that received the reports may end before.
  std::vector<Ended> reports_{};
  HostPlace reported_{};  // whose ranks have all ended, by reports_
  std::optional<AskStop> asked_{};
  AgentActions actions_;
};

}  // namespace lockstep
