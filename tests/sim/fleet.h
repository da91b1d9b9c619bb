// Fleet simulates the agents of a supervised run: the real Agent on each host, and the real Leader
// in the process of the agent that claimed the newest term. Messages are passed as values. The
// ranks are a model: they start together, save at intervals, and end when the failure detector
// would end them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "dist/job/supervise/agent.h"
#include "dist/job/supervise/leader.h"
#include "tests/sim/kernel.h"
#include "train/observe/ledger.h"

namespace lockstep::sim {

struct FleetOptions {
  int hosts = 6;
  LeaderOptions leader{.need = 4, .least = 4};
  Micros load = 20 * kSecond;        // from the start of the ranks until the first step
  Micros save_every = 60 * kSecond;  // of training
  Micros tick = 100 * kMillisecond;  // of the agents' and the leader's loops
  Micros lag = 0;  // of the recorded step, because a GPU computes the next one meanwhile
};

enum class RankFault : std::uint8_t {
  crash,       // a signal ends a rank
  gpu,         // an Xid error ends a rank
  hang,        // a rank makes no progress
  program,     // an error of the program, at a fixed step
  all,         // the same error, on all ranks
  network,     // connections break, and no rank is lost
  corruption,  // a rank's weights are wrong
  storage,     // all ranks get errors from the storage
  memory,      // the kernel kills a rank because memory is short
};

enum class Outage : std::uint8_t {
  hang,    // calls return after the outage
  errors,  // calls fail
};

class Fleet {
 public:
  Fleet(Kernel& kernel, FleetOptions options);
  ~Fleet();

  void start_agents();

  // Faults.
  void power_off(int host, Micros time);
  void fail_rank(int host, RankFault fault);  // of the attempt that trains
  void pause_agent(int host, Micros time);
  void restart_agent(int host);  // its process is killed, and another one starts
  void cut(int from, int to) { cuts_.insert({from, to}); }  // agents' links
  void heal();
  void lose_records(Micros time, Outage outage, int host);  // of the storage, as this host sees it
  void lose_records(Micros time, Outage outage);            // as all hosts see it
  void break_host(int host) { broken_.insert(host); }       // fails its check
  void drain(int host);                                     // a user asks the leader
  void ask_stop(int host, bool leaves);                     // a signal to the agent
  void report_slow(int by, const std::vector<int>& hosts);  // ranks find stragglers
  void finish();                                            // the run is complete: rank 0 ends last
  // For this time, the host lists the directory of the records as it is now, without changes.
  void freeze_listing(int host, Micros time);
  // The rank of place 1 crashes at this time of training, because of its data.
  void poison(Micros trained) { poison_ = trained; }
  // The ranks of this host crash 5 s after each start.
  void make_fragile(int host) { fragile_ = host; }

  int leader() const;  // its host; -1: none
  int host_of_rank_0() const;
  bool trains() const { return training_ != 0; }
  bool trains_on(int host) const;
  Micros trained() const;                  // time of training whose steps count
  std::vector<LedgerLine> ledger() const;  // as the ranks write it; a step takes a second
  int starts() const { return starts_; }
  const std::optional<RunOver>& over() const { return over_; }
  struct Judged {
    std::string cause{};
    std::vector<std::string> hosts{};
    bool restarts = false;
  };
  const std::vector<Judged>& judged() const { return judged_; }
  bool has_agent(int host) const;
  const std::set<std::string>& excluded() const { return excluded_; }
  const std::string& why() const { return why_; }  // of the last judgement

  // Time passes without any event. The agents stay joined.
  void jump(Micros time);
  void load_longer(Micros time);  // the same, while a start loads

  static std::string name(int host) { return str("h", host); }

 private:
  struct Host;
  struct Link;
  // Thread does work that waits for the storage, in order, as launch/supervise/mailbox.h's
  // Background. `works`: the storage reported no error.
  using Work = std::function<void(bool works)>;
  using Thread = std::deque<Work>;
  Host& at(int host) { return *hosts_.at(static_cast<std::size_t>(host)); }
  const Host& at(int host) const { return *hosts_.at(static_cast<std::size_t>(host)); }
  Deadline local(const Host& host) const;
  Micros latency() { return kernel_.random.between(100, 2'000); }
  void start_agent(int host);
  void tick(int host, int life);
  void lead_tick(int host, int life);
  void carry_out(int host, AgentActions actions);
  void carry_out_as_leader(int host, LeaderActions actions);
  void start_ranks(int host, const Start& start);
  void stop_ranks(int host, bool saves);
  void begin_training(std::int64_t attempt);
  Micros computed() const;  // time of training, with that of unsaved steps
  Micros saved(Micros until) const;
  void end_training(Micros until);
  void end_ranks(int host, std::int64_t attempt, std::vector<RankEnd> ends, std::vector<int> xids,
                 Micros at);
  void break_attempt(const Attempt& attempt, int host, const std::string& why, Micros after);
  void deliver(const std::shared_ptr<Link>& link, bool to_leader, std::function<void()> act);
  void pump(const std::shared_ptr<Link>& link);
  void close(std::shared_ptr<Link> link, bool tells_agent);
  void end_leader(int host);
  void end_process(int host);  // of the agent
  void store(int host, const std::shared_ptr<Thread>& thread, Work work);
  void serve(int host, const std::shared_ptr<Thread>& thread);
  void claim(int host, std::int64_t term, bool works);
  void keep_term(int host);
  void write_records(int host);
  std::vector<Json> events() const;
  std::int64_t newest_attempt() const { return attempts_.empty() ? 0 : attempts_.rbegin()->first; }
  void return_hosts();
  Records read_records(int host) const;
  void crash_at(std::int64_t attempt, Micros trained, std::function<int()> host);
  void write_ledger(std::vector<LedgerLine>& lines, Micros until) const;
  void when_awake(int host, std::function<void()> act);

  Kernel& kernel_;
  FleetOptions options_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::shared_ptr<Link>> links_;
  std::set<std::pair<int, int>> cuts_;
  std::set<int> broken_;
  std::multimap<Micros, int> returns_;  // when hosts have power again
  Term newest_;
  std::string alive_;  // the text of the file
  std::int64_t kept_ = 0;
  std::vector<Json> log_;      // log.jsonl
  std::int64_t may_stop_ = 0;  // attempts up to this one may be stopped while they train
  Micros poison_ = 0;          // 0: no data is wrong
  int fragile_ = -1;
  std::vector<LedgerLine> ledger_;
  std::string why_;
  Micros ended_ = -1;  // when rank 0 of the newest attempt ended the run; -1: it has not
  std::map<std::int64_t, Attempt> attempts_;  // as the leaders recorded them
  std::map<std::int64_t, int> started_;       // hosts, by attempt
  std::set<std::int64_t> failing_;            // attempts whose ranks are about to end
  std::int64_t training_ = 0;                 // the attempt that trains; 0: none
  Micros began_ = 0, saved_ = 0, last_ = 0;   // time of training: at the start, saved, in all
  int starts_ = 0;
  std::optional<RunOver> over_;
  std::vector<Judged> judged_;
  std::set<std::string> excluded_;
};

}  // namespace lockstep::sim
