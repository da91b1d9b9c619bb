// Leader supervises a run: it gathers agents, starts the ranks on `need` of their hosts, finds out
// why they ended, and starts them again, on a spare host if one is faulty. It is pure: callers pass
// events with the time and carry out the actions. One agent of a run contains the leader. A new
// leader learns from the agents which ranks run, so the change has no effect on them.
//
//   adopt -> gather -> prepare -> run -> judge -> gather (restart)
//                        |          '-> over      '-> over (done, asked, or a retry cannot help)
//                        '-> gather (a host failed its check)
//
// A silent agent never ends an attempt. Only ranks end it: they detect failures of other ranks
// (dist/job/failure_detector.h). So an agent may die or be stopped without any effect on the run.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/function_ref.h"
#include "dist/job/supervise/causes.h"

namespace lockstep {

struct LeaderOptions {
  std::string job{};
  int need = 1;   // hosts that train
  int least = 1;  // hosts with which it starts if `need` do not join within `gather`
  int slots = 1;
  std::int64_t term = 1;
  bool takes_over = false;          // the previous leader did not end the run
  bool is_same_start = false;       // and was of the same job
  Milliseconds adopt{1'000};        // for running agents to join a new leader
  Milliseconds gather{300'000};     // for `need` hosts to join; then `least` are enough
  Milliseconds rejoin{300'000};     // the same after an attempt has ended
  Milliseconds readmit{5'000};      // pause before a readmitted host is used
  Milliseconds silence{3'000};      // without a message; then an agent counts as absent
  Milliseconds check{30'000};       // for an answer to Prepare
  Milliseconds recheck{3'600'000};  // a check of a host counts for this time
  Milliseconds evidence{2'000};     // for the other ranks to end by themselves after the first
  Milliseconds kill{5'000};         // for killed ranks to end; then their host is stuck
  Milliseconds save{300'000};       // for ranks that save and stop; then they are killed
  Milliseconds finish{600'000};     // for the others to end after the first rank of a complete run
  Milliseconds progress{5'000};     // to read the progress of the run
  Milliseconds orphaned{30'000};    // without progress, if no host of the attempt has an agent
  PolicyOptions policy{};
};

// Actions.
struct SendTo {
  std::string agent;  // id
  FromLeader message;
};
struct ReadProgress {};  // answer with Leader::progress()
struct BadHost {         // run the operator's command
  std::string host, why;
};
struct Record {  // a line of RUN/supervise/log.jsonl
  Json line;
};
struct RunOver {
  int exit_code;
  std::string why;
  std::vector<std::string> excluded;  // hosts
};
struct DrainAnswer {  // of drain()
  bool is_done = false;
  std::string text{};
};
using LeaderAction = std::variant<SendTo, ReadProgress, BadHost, Record, RunOver, DrainAnswer>;
using LeaderActions = std::vector<LeaderAction>;

class Leader {
 public:
  Leader(LeaderOptions options, Deadline now);

  // Call it before the first event. Restores the decisions of earlier leaders of this start from
  // their records: places, excluded hosts, the number of restarts. `records` may have lines of
  // other jobs and of deposed leaders. `wall`: seconds since 1970.
  LeaderActions begin(const std::vector<Json>& records, double wall, Deadline now);

  // Events. Each returns the actions to take, in their order.
  LeaderActions message(const std::string& agent, const FromAgent& message, Deadline now);
  LeaderActions closed(const std::string& agent, Deadline now);  // its connection closed
  //   end_code: exit code of rank 0 from the run's ledger; -1: the ledger does not have it
  LeaderActions progress(std::int64_t saved_step, std::int64_t last_step, int end_code,
                         Deadline now);
  // A user or a scheduler asks to save and stop. `exit_code`: of the run then.
  LeaderActions stop(const std::string& why, Deadline now, int exit_code = kTemporary);
  // A user asks not to use a host until supervise ends: the ranks save and restart without it.
  LeaderActions drain(const std::string& host, const std::string& why, Deadline now);
  LeaderActions time(Deadline now);  // at least twice a second

  enum class Phase : std::uint8_t { adopt, gather, prepare, run, judge, over };
  Phase phase() const { return phase_; }
  const Attempt& attempt() const { return attempt_; }
  Json status(Deadline now) const;

 private:
  struct Agent {
    Join join{};
    Deadline heard{};
    bool present = true;                // its connection is open
    bool is_prepared = false;           // of attempt_
    bool has_ended = true;              // no rank of attempt_ runs there
    std::optional<Deadline> checked{};  // time of its last check without a fault
    bool is_checking = false;           // as a spare
    std::string leaves{};               // why its host shuts down; "": it does not
  };
  bool is_checked(const Agent& agent, Deadline now) const {
    return agent.checked && now - *agent.checked < options_.recheck;
  }
  bool is_usable(const Agent& agent, Deadline now) const;
  bool may_train(const Agent& agent, Deadline now) const {
    return is_heard(agent, now) && agent.leaves.empty() &&
           !policy_.is_excluded(agent.join.host, now);
  }
  bool is_heard(const Agent& agent, Deadline now) const {
    return agent.present && now - agent.heard < options_.silence;
  }
  Agent* at(const std::string& host);          // the agent of a host; nullptr: none
  std::vector<Agent*> attended(Deadline now);  // agents of the hosts of attempt_
  bool any_waits(FunctionRef<bool(const Agent* agent)> waits);
  bool all_ended(Deadline now);

  void stop_run(const std::string& why, int exit_code, Deadline now);
  void joined(const std::string& id, const Join& join, Deadline now);
  void start(Deadline now);
  void ready(const std::string& id, const Ready& ready, Deadline now);
  void ended(const std::string& id, const Ended& ended, Deadline now);
  void adopt(Deadline now);
  void gather(Deadline now);
  void gather_in(Milliseconds pause, Deadline now);
  void prepare(std::vector<std::string> places, Deadline now);
  void watch_orphans(Deadline now);
  void check_spares(Deadline now);
  void slow(const Slow& slow, Deadline now);
  void exclude(const std::string& host, const std::string& why, Deadline now);
  void leave(const std::string& host, Deadline now);
  void ask_to_leave(const std::string& id, const std::string& why, Deadline now);
  void let_leave(const Agent& agent, Deadline now);
  void look_at_ends(Deadline now);
  void begin_judging(Milliseconds wait, Deadline now);
  void judge(Deadline now);
  void stop_ranks(bool save, Deadline now);
  void decide(Deadline now);
  void follow(const Decision& decision);
  void forget();
  void remember(const Json& line, Deadline then);
  std::string substitute(const std::string& host, Deadline now) const;
  void move(const std::string& host, const std::string& to);
  std::map<std::string, int> places() const;  // of the hosts of attempt_
  void over(int exit_code, const std::string& why, Deadline now);
  void send(const std::string& agent, FromLeader message);
  void record(const char* event, const std::vector<std::pair<std::string, Json>>& fields);

  LeaderOptions options_;
  Phase phase_ = Phase::adopt;
  std::map<std::string, Agent> agents_;       // by id
  std::map<std::string, std::string> id_of_;  // of the agent of a host
  std::size_t waits_for_ = 0;                 // a place, see any_waits()
  // Newest; hosts keep their places in the next one. A host that a new leader does not know is "".
  Attempt attempt_;
  Attempt known_;  // newest in the records, of any job
  Evidence evidence_;
  RestartPolicy policy_;
  Deadline until_;     // of the phase
  Deadline earliest_;  // of the next attempt
  enum class Judging : std::uint8_t { evidence, killed, progress };
  Judging judging_ = Judging::evidence;
  std::string asked_{};        // why the run was asked to stop
  int asked_code_ = 0;         // exit code of the run after that request
  std::string draining_{};     // the host without which it restarts
  std::optional<Ready> root_;  // of rank 0's host
  std::int64_t attempts_ = 0;
  std::int64_t last_judged_ = 0;                 // attempt
  std::optional<Deadline> finish_;               // limit for the ranks of a complete run to end
  int exit_code_ = 0;                            // of the run that is over
  std::int64_t noted_step_ = 0, skip_step_ = 0;  // of the next attempt, see Start
  std::int64_t seen_step_ = -1;                  // of orphaned ranks; changed at seen_
  Deadline seen_;
  Deadline next_read_{};                    // of the progress of orphaned ranks
  Deadline read_{};                         // when the progress of the run was read last
  Deadline turned_;                         // the last call of time()
  std::optional<Deadline> ended_, judged_;  // of the attempt before, if there was one
  LeaderActions actions_;
};

}  // namespace lockstep
