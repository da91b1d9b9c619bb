#include "launch/supervise/supervise.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/log.h"
#include "core/system/interfaces.h"
#include "core/system/machine.h"
#include "launch/supervise/leader_server.h"
#include "launch/supervise/mailbox.h"
#include "launch/supervise/rank_processes.h"
#include "launch/supervise/records.h"

namespace lockstep {
namespace {

constexpr Milliseconds kAgentTick{50}, kConnectTime{1'000}, kAgentEndTime{8'000};

// Blocks these signals and makes them readable. All threads that start later block them too.
class Signals {
 public:
  Signals() {
    std::signal(SIGPIPE, SIG_IGN);  // a closed log does not end the agent
    sigset_t set;
    sigemptyset(&set);
    for (const int one : {SIGTERM, SIGINT, SIGUSR1, SIGHUP})
      sigaddset(&set, one);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    file_ = Descriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!file_) throw TransientError(str("cannot make a signalfd: ", reason(errno)));
  }
  int descriptor() const { return file_.number(); }
  int next() const {  // 0: none
    signalfd_siginfo info{};
    return read(file_.number(), &info, sizeof info) == sizeof info
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  Descriptor file_;
};

bool is_pipe(int descriptor) {
  struct stat status {};
  return fstat(descriptor, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

class AgentProcess {
 public:
  explicit AgentProcess(const SuperviseOptions& options)
      : options_(options),
        records_(options.run),
        secret_(records_.secret()),
        ranks_(options.command, options.leader.slots, options.run),
        reads_input_(is_pipe(STDIN_FILENO)) {
    Join join{.id = Secret::draw().hex().substr(0, 16),
              .host = host_name(),
              .job = options.leader.job,
              .slots = options.leader.slots,
              .running = ranks_.adopt()};
    agent_.emplace(AgentOptions{.join = std::move(join)}, Clock::now());
  }

  int run() {
    while (!is_over_) {
      wait();
      mailbox_.run();
      while (const int signal = signals_.next())
        act(agent_->stop({.why = str("signal ", signal, " (", strsignal(signal), ")"),
                          .leaves = signal == SIGTERM},
                         Clock::now()));
      read_input();
      read_leader();
      if (auto slow = ranks_.slow(); !slow.empty())
        act(agent_->slow({std::move(slow)}, Clock::now()));
      if (const auto ended = ranks_.ended()) act(agent_->ended(*ended, Clock::now()));
      act(agent_->time(Clock::now()));
    }
    // Ranks have been killed; the leader tells the other agents.
    const auto deadline = Clock::now() + kAgentEndTime;
    while (Clock::now() < deadline &&
           (ranks_.running() || std::ranges::any_of(leaders_, &LeaderServer::is_leading))) {
      leader_socket_ = {};
      ranks_.ended();
      std::this_thread::sleep_for(kAgentTick);
    }
    // Work of a thread that hangs uses these objects.
    bool is_done =
        files_.finish(Clock::now() + kAgentTick) && checks_.finish(Clock::now() + kAgentTick);
    for (const auto& leader : leaders_)
      is_done = leader->stop() && is_done;
    if (!is_done) _exit(exit_code_);
    return exit_code_;
  }

 private:
  void wait() {
    std::vector<pollfd> polled{
        {.fd = mailbox_.descriptor(), .events = POLLIN, .revents = 0},
        {.fd = signals_.descriptor(), .events = POLLIN, .revents = 0},
        {.fd = leader_socket_.descriptor(), .events = POLLIN, .revents = 0},
        {.fd = reads_input_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}};
    ranks_.add_to(polled);
    poll(polled.data(), polled.size(), static_cast<int>(kAgentTick.count()));
  }

  // A starter over ssh writes a line to end the run; ssh does not pass signals on.
  void read_input() {
    if (!reads_input_) return;
    pollfd polled{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (poll(&polled, 1, 0) != 1) return;
    std::array<char, 256> bytes;
    const auto count = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count <= 0)
      reads_input_ = false;
    else if (std::string_view(bytes.data(), static_cast<std::size_t>(count)).starts_with("stop\n"))
      act(agent_->stop({.why = "the starter of the agents was told to stop"}, Clock::now()));
  }

  void read_leader() {
    if (!leader_socket_) return;
    try {
      std::array<std::byte, 4096> bytes;
      for (;;) {
        const auto count = leader_socket_.try_receive(bytes);
        if (!count) return lose_leader();
        if (*count == 0) break;
        reader_.add(std::span(bytes).first(*count));
      }
      while (const auto frame = reader_.next()) {
        if (frame->kind != FrameKind::message) continue;
        act(agent_->message(decode_from_leader(std::string(as_text(frame->body))), Clock::now()));
        if (!leader_socket_) return;
      }
    } catch (const Error& error) {
      log_own_warning("supervise: the leader: ", error.what());
      lose_leader();
    }
  }

  void lose_leader() {
    leader_socket_ = {};
    act(agent_->disconnected(Clock::now()));
  }

  void act(const AgentActions& actions) {
    for (const auto& action : actions)
      std::visit([this](const auto& one) { carry_out(one); }, action);
  }

  void carry_out(const Look&) {
    files_.run([this] {
      Records records;
      try {
        records = records_.read();
      } catch (const Error& error) {
        records.readable = false;
        log_own_warning("supervise: ", error.what());
      }
      mailbox_.post([this, records] { act(agent_->looked(records, Clock::now())); });
    });
  }

  void carry_out(const ClaimTerm& claim) {
    try {
      claim_term(claim.number);
    } catch (const std::exception& error) {
      log_own_warning("supervise: cannot lead: ", error.what());
      mailbox_.post([this] { act(agent_->claimed(false, Clock::now())); });
    }
  }

  void claim_term(std::int64_t number) {
    auto* leader = leaders_
                       .emplace_back(std::make_unique<LeaderServer>(options_.leader, records_,
                                                                    secret_, options_.on_bad_host))
                       .get();
    const Term term{.number = number,
                    .id = Secret::draw().hex().substr(0, 16),
                    .job = options_.leader.job,
                    .host = host_name(),
                    .addresses = local_addresses(options_.interfaces),
                    .port = leader->port()};
    files_.run([this, leader, term] {
      bool won = false, takes_over = false, is_same_start = false;
      std::vector<Json> before_it;
      try {
        const auto before = records_.read();
        takes_over = term.number > 1 && before.alive != "over";
        is_same_start = takes_over && before.newest.job == term.job;
        won = records_.claim(term);
        if (takes_over && won) before_it = records_.events();
      } catch (const Error& error) {
        log_own_warning("supervise: ", error.what());
        won = false;  // another agent claims the next term
      }
      mailbox_.post(
          [this, leader, won, takes_over, is_same_start, before_it, number = term.number] {
            if (won)
              leader->lead(number, takes_over, is_same_start, before_it);
            else
              std::erase_if(leaders_, [&](const auto& one) { return one.get() == leader; });
            act(agent_->claimed(won, Clock::now()));
          });
    });
  }

  void carry_out(const ConnectTo& to) {
    try {
      leader_socket_ =
          join({.addresses = to.term.addresses, .port = to.term.port, .secret = secret_},
               Channel::agents, Clock::now() + kConnectTime);
      reader_ = {};
      act(agent_->connected(Clock::now()));
    } catch (const Error&) {  // the records tell what to do
      act(agent_->disconnected(Clock::now()));
    }
  }

  void carry_out(const Disconnect&) { leader_socket_ = {}; }

  void carry_out(const SendToLeader& to) {
    if (!leader_socket_) return;
    Bytes bytes;
    append(bytes, {.kind = FrameKind::message, .body = as_bytes(encode(to.message))});
    try {
      leader_socket_.send_all(bytes, Clock::now() + kConnectTime);
    } catch (const TransientError&) {
      lose_leader();
    }
  }

  void carry_out(const CheckHost& check) {
    Ready ready{.attempt = check.prepare.attempt};
    checks_.run([this, ready, prepare = check.prepare]() mutable {
      try {
        ready.addresses = local_addresses(options_.interfaces);
        if (prepare.check) check_host();
        if (prepare.leads) ready.port = listen_at("", 0).port();
      } catch (const Error& error) {
        ready.fault = error.what();
      }
      mailbox_.post([this, ready] { act(agent_->checked(ready, Clock::now())); });
    });
  }

  // Finds out whether ranks can start on this host. Throws an error if they cannot.
  void check_host() const {
    std::vector<std::string> flags;
    for (std::size_t i = 0; i + 1 < options_.command.size(); ++i)
      if (options_.command[i] == "--device") flags = {"--device", options_.command[i + 1]};
    const auto fault = check_ranks(options_.leader.slots, flags, options_.leader.check / 2);
    if (!fault.empty()) throw TransientError(fault);
  }

  void carry_out(const StartRanks& start) {
    try {
      // All agents have the secret of the run, so none is sent.
      ranks_.start(start.start,
                   Secret(secret_.sign(as_bytes(str("attempt ", start.start.place.attempt)))));
    } catch (const Error& error) {
      log_line(LogLevel::error, error.what());
      RankEnd end{.rank = start.start.place.number * options_.leader.slots,
                  .exit_code = error.exit_code(),
                  .error = error.what()};
      act(agent_->ended({.attempt = start.start.place.attempt, .ranks = {end}, .all = true},
                        Clock::now()));
    }
  }

  void carry_out(const StopRanks& stop) { ranks_.stop(stop.save); }

  void carry_out(const EndAgent& end) {
    is_over_ = true;
    exit_code_ = end.exit_code;
    if (std::ranges::none_of(leaders_, &LeaderServer::is_leading) || exit_code_ != 0)
      log_line(exit_code_ == 0 ? LogLevel::info : LogLevel::error,
               str("supervise: the run ends: ", end.why));
  }

  const SuperviseOptions& options_;
  Signals signals_;
  SuperviseRecords records_;
  Secret secret_;
  Mailbox mailbox_;
  Background files_, checks_;
  RankProcesses ranks_;
  std::optional<Agent> agent_;
  Socket leader_socket_;
  FrameReader reader_;
  std::vector<std::unique_ptr<LeaderServer>> leaders_;  // all stay: their threads may hang
  bool is_over_ = false, reads_input_;
  int exit_code_ = 0;
};

}  // namespace

std::string run_of(const std::vector<std::string>& command) {
  constexpr std::string_view kFlag = "--run";
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command[i] == kFlag && i + 1 < command.size()) return command[i + 1];
    if (command[i].starts_with(str(kFlag, "="))) return command[i].substr(kFlag.size() + 1);
  }
  throw ConfigError(
      "pass the directory of the run to train: lockstep supervise -- train "
      "CONFIG.toml --run RUN");
}

int supervise(const SuperviseOptions& options) {
  return AgentProcess(options).run();
}

}  // namespace lockstep
