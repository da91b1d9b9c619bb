// LeaderServer runs the leader of a run in a thread of the agent that claimed the term: it serves
// the connections of all agents and carries out the actions of Leader.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "dist/job/handshake.h"
#include "dist/job/supervise/leader.h"
#include "launch/supervise/mailbox.h"
#include "launch/supervise/records.h"
#include "train/run/requests.h"

namespace lockstep {

class LeaderServer {
 public:
  //   on_bad_host  command that is told the names of faulty hosts, with %h and %r; "": none
  // Listens; throws TransientError if it cannot.
  LeaderServer(LeaderOptions options, const SuperviseRecords& records, const Secret& secret,
               std::string on_bad_host);
  LeaderServer(const LeaderServer&) = delete;
  LeaderServer& operator=(const LeaderServer&) = delete;
  ~LeaderServer() { stop(); }

  // Ends the thread. Returns whether all its files are written; if not, a thread that hangs uses
  // this object.
  bool stop();

  std::uint16_t port() const { return listener_.port(); }
  // Starts the thread after the term was claimed.
  //   takes_over, is_same_start: see LeaderOptions      before: of Leader::begin
  void lead(std::int64_t term, bool takes_over, bool is_same_start, std::vector<Json> before);
  static bool is_leading(const std::unique_ptr<LeaderServer>& leader) {
    return leader->thread_.joinable() && !leader->over_;
  }

 private:
  struct Connection {
    Connection(Socket connected, const Secret& secret, Deadline until)
        : socket(std::move(connected)), session(secret, random_bytes()), deadline(until) {}
    Socket socket;
    Session session;
    Deadline deadline;  // to authenticate
    Bytes out{};
    std::string agent{};  // id, after its Join
    bool closed = false;
  };

  void run();
  void lead_until_over();
  void watch(int descriptor, std::uint32_t events, Connection* connection) const;
  void accept_all();
  void close(Connection& connection);
  void remove_closed(Deadline now);
  void serve(Connection& from);
  void take(Connection& from, const std::string& text);
  void carry_out(const LeaderActions& actions);
  void send(const std::string& agent, const FromLeader& message);
  void flush(Connection& to);
  void write_records(Deadline now);
  void keep_term();
  void take_requests();
  DrainAnswer act_on(const Request& request, bool is_old);
  void take(const Request& request, bool is_old, bool trains, std::int64_t epoch);
  void read_progress();
  void tell_bad_host(const std::string& host, const std::string& why);

  LeaderOptions options_;
  const SuperviseRecords& records_;
  Secret secret_;
  std::string on_bad_host_;
  Socket listener_;
  Descriptor epoll_;
  Mailbox mailbox_;
  // Separate threads, so that neither a slow file nor an operator's command delays the others.
  Background files_, alive_, commands_;
  std::optional<Leader> leader_;
  std::list<Connection> connections_;
  std::map<std::string, Connection*> by_agent_;  // ids of those that have joined
  std::vector<Connection*> sending_;             // may have something to send
  bool any_closed_ = false;
  std::atomic<bool> over_ = false, stopping_ = false, is_written_ = true, keeping_ = false,
                    writing_ = false;
  std::optional<int> run_over_;  // the exit code of the run
  bool deposed_ = false;
  std::vector<Json> lines_;                // for log.jsonl
  Deadline next_write_{}, next_status_{};  // of log.jsonl; of status.json if no event comes
  std::int64_t beats_ = 0;
  std::vector<Json> before_;
  ControlDirectory control_;
  Descriptor control_lock_;  // tells `lockstep ctl` that a leader takes `drain`
  std::optional<DrainAnswer> drained_;
  bool has_looked_ = false;
  std::set<std::int64_t> old_;                   // requests to earlier starts, by number
  std::map<std::int64_t, DrainAnswer> answers_;  // to requests, by number
  std::set<std::int64_t> answering_;             // whose answer is being written, or is
  std::thread thread_;
};

}  // namespace lockstep
