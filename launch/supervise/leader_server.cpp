#include "launch/supervise/leader_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sstream>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/epochs.h"
#include "core/file.h"
#include "core/log.h"
#include "core/start_thread.h"
#include "core/wall_clock.h"
#include "launch/supervise/spawn.h"
#include "train/run_directory.h"

namespace lockstep {
namespace {

constexpr int kEvents = 1024;  // at most, of one call of epoll_wait
constexpr Milliseconds kTurn{20}, kKeepTerm{500}, kWriteTime{100}, kStatusTime{5'000},
    kHandshakeTime{5'000}, kEndTime{3'000};
constexpr std::size_t kMostConnections = 20'000, kMostOutBytes = 16 << 20;

std::string in_words(const Json& value) {
  constexpr std::size_t kMost = 8;
  if (value.is_string()) return value.as_string();
  if (!value.is_array() || value.as_array().size() <= kMost) return value.dump();
  const auto& all = value.as_array();
  std::string text = "[";
  for (std::size_t i = 0; i < kMost; ++i)
    text += all[i].dump() + ",";
  return str(text, " and ", all.size() - kMost, " more]");
}

// A line for people about an event.
std::string event_in_words(const Json& line) {
  std::string text;
  for (const auto& [key, value] : line.as_object())
    if (key == "event")
      text = value.as_string();
    else if (key != "term" && key != "saved_step" && key != "last_step")
      text += str("; ", key, " ", in_words(value));
  return text;
}

}  // namespace

LeaderServer::LeaderServer(LeaderOptions options, const SuperviseRecords& records,
                           const Secret& secret, std::string on_bad_host)
    : options_(std::move(options)),
      records_(records),
      secret_(secret),
      on_bad_host_(std::move(on_bad_host)),
      listener_(listen_at("", 0)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      control_(records.run()) {
  if (!epoll_) throw TransientError(str("cannot create an epoll descriptor: ", reason(errno)));
  watch(listener_.descriptor(), EPOLLIN, nullptr);
  watch(mailbox_.descriptor(), EPOLLIN, nullptr);
}

bool LeaderServer::stop() {
  stopping_ = true;
  mailbox_.post([] {});
  if (thread_.joinable()) thread_.join();
  return is_written_;
}

void LeaderServer::lead(std::int64_t term, bool takes_over, bool is_same_start,
                        std::vector<Json> before) {
  before_ = std::move(before);
  options_.term = term;
  options_.takes_over = takes_over;
  options_.is_same_start = is_same_start;
  thread_ = start_thread([this] { run(); });
}

void LeaderServer::run() {
  try {
    lead_until_over();
  } catch (const std::exception& error) {  // another agent leads then
    log_own_warning("supervise: this agent stops leading: ", error.what());
    by_agent_.clear();
    connections_.clear();
  }
  if (leader_ && !deposed_) write_records(Clock::now());
  const auto limit = Clock::now() + kEndTime;
  is_written_ = alive_.finish(limit) && files_.finish(limit);
  over_ = true;
}

void LeaderServer::lead_until_over() {
  allow_open_files(kMostConnections);
  leader_.emplace(options_, Clock::now());
  carry_out(leader_->begin(before_, seconds_since_1970(), Clock::now()));
  auto next_keep = Clock::now(), next_turn = next_keep;
  auto end = Deadline::max();
  std::array<epoll_event, kEvents> events;
  while (!stopping_ && !deposed_) {
    const int count =
        epoll_wait(epoll_.number(), events.data(), kEvents, static_cast<int>(kTurn.count()));
    for (int i = 0; i < count; ++i)
      if (auto* connection = static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr))
        serve(*connection);
    accept_all();
    mailbox_.run();
    const auto now = Clock::now();
    if (now >= next_turn) {  // its time grows with the number of hosts
      next_turn = now + kTurn;
      carry_out(leader_->time(now));
      for (auto& connection : connections_)
        if (!connection.session.authenticated() && now >= connection.deadline) close(connection);
    }
    if (!writing_ && now >= next_write_ && (!lines_.empty() || now >= next_status_))
      write_records(now);
    if (now >= next_keep && !run_over_) {
      next_keep = now + kKeepTerm;
      keep_term();
    }
    for (auto* connection : std::exchange(sending_, {}))
      flush(*connection);
    if (std::exchange(any_closed_, false)) remove_closed(now);
    if (run_over_ && end == Deadline::max()) end = now + kEndTime;
    const auto all_said = [&] {
      return std::ranges::all_of(connections_,
                                 [](auto& connection) { return connection.out.empty(); });
    };
    if (run_over_ &&
        (connections_.empty() || (now >= end && all_said()) || now >= 2 * kEndTime + end))
      break;
  }
  if (deposed_) log_own_warning("supervise: another agent leads this run now");
  by_agent_.clear();
  connections_.clear();
}

void LeaderServer::watch(int descriptor, std::uint32_t events, Connection* connection) const {
  epoll_event event{.events = events, .data = {.ptr = connection}};
  if (epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw TransientError(str("cannot watch a connection: ", reason(errno)));
}

void LeaderServer::accept_all() {
  while (auto socket = accept_from(listener_)) {
    if (connections_.size() >= kMostConnections) continue;
    auto& connection =
        connections_.emplace_back(std::move(*socket), secret_, Clock::now() + kHandshakeTime);
    // Edge-triggered: serve() receives and sends all that it can.
    watch(connection.socket.descriptor(), EPOLLIN | EPOLLOUT | EPOLLET, &connection);
  }
}

void LeaderServer::close(Connection& connection) {
  connection.closed = any_closed_ = true;
}

void LeaderServer::remove_closed(Deadline now) {
  for (auto& connection : connections_) {
    if (!connection.closed) continue;
    std::erase(sending_, &connection);
    epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, connection.socket.descriptor(), nullptr);
    const auto found = by_agent_.find(connection.agent);
    if (found == by_agent_.end() || found->second != &connection) continue;
    by_agent_.erase(found);  // the agent may have joined again by another connection
    carry_out(leader_->closed(connection.agent, now));
  }
  connections_.remove_if([](auto& connection) { return connection.closed; });
}

void LeaderServer::serve(Connection& from) {
  try {
    std::array<std::byte, 4096> bytes;
    while (!from.closed) {
      const auto count = from.socket.try_receive(bytes);
      if (!count) close(from);
      if (!count || *count == 0) break;
      for (const auto& frame : from.session.take(std::span(bytes).first(*count), from.out)) {
        if (from.session.introduction().channel != Channel::agents)
          throw DataError("it is not an agent");
        if (frame.kind == FrameKind::message) take(from, as_text(frame.body));
      }
    }
  } catch (const Error& error) {
    if (!from.agent.empty()) log_own_warning("supervise: ", from.socket.peer(), ": ", error.what());
    close(from);
  }
  flush(from);
}

void LeaderServer::take(Connection& from, const std::string& text) {
  const auto message = decode_from_agent(text);
  if (const auto* join = std::get_if<Join>(&message)) {
    from.agent = join->id;
    by_agent_[from.agent] = &from;
  }
  if (from.agent.empty()) throw DataError("it has not joined");
  carry_out(leader_->message(from.agent, message, Clock::now()));
}

void LeaderServer::carry_out(const LeaderActions& actions) {
  for (const auto& action : actions) {
    if (const auto* message = std::get_if<SendTo>(&action)) {
      send(message->agent, message->message);
    } else if (std::holds_alternative<ReadProgress>(action)) {
      read_progress();
    } else if (const auto* bad = std::get_if<BadHost>(&action)) {
      tell_bad_host(bad->host, bad->why);
    } else if (const auto* record = std::get_if<Record>(&action)) {
      log_line(LogLevel::info, str("supervise: ", event_in_words(record->line)));
      Json line = Json::Object{{"time", seconds_since_1970()}};
      for (const auto& [key, value] : record->line.as_object())
        line.set(key, value);
      lines_.push_back(std::move(line));
    } else if (const auto* drained = std::get_if<DrainAnswer>(&action)) {
      drained_ = *drained;
    } else if (const auto* over = std::get_if<RunOver>(&action)) {
      run_over_ = over->exit_code;
      alive_.run([this] {
        try {
          records_.set_alive(str(options_.term, " over ", *run_over_));
        } catch (const Error& error) {
          log_own_warning(error.what());
        }
      });
      files_.run([this, over = *over] {
        try {
          records_.set_over(over.exit_code, over.excluded);
        } catch (const Error& error) {
          log_own_warning(error.what());
        }
      });
    }
  }
}

// Thousands of hosts join at once, so lines are written together.
void LeaderServer::write_records(Deadline now) {
  writing_ = true;
  next_write_ = now + kWriteTime;
  next_status_ = now + kStatusTime;
  files_.run([this, lines = std::exchange(lines_, {}), status = leader_->status(now)] {
    try {
      if (!lines.empty()) records_.append(lines);
      records_.set_status(status);
    } catch (const Error& error) {
      log_own_warning(error.what());
    }
    writing_ = false;
  });
}

void LeaderServer::send(const std::string& agent, const FromLeader& message) {
  const auto found = by_agent_.find(agent);
  if (found == by_agent_.end()) return;
  append(found->second->out, {.kind = FrameKind::message, .body = as_bytes(encode(message))});
  sending_.push_back(found->second);
}

void LeaderServer::flush(Connection& to) {
  try {
    if (to.out.empty() || to.closed) return;
    const auto count = to.socket.try_send(to.out);
    to.out.erase(to.out.begin(), to.out.begin() + static_cast<std::ptrdiff_t>(count));
    if (to.out.size() > kMostOutBytes) close(to);
  } catch (const TransientError&) {
    close(to);
  }
}

// Shows that the leader is alive, and finds out whether another agent has claimed a newer term.
void LeaderServer::keep_term() {
  if (keeping_.exchange(true)) return;  // the file system has not answered yet
  alive_.run([this, text = str(options_.term, " ", ++beats_), term = options_.term] {
    try {
      records_.set_alive(text);
      if (records_.read().newest.number > term)
        mailbox_.post([this] { deposed_ = true; });
      else
        take_requests();
    } catch (const Error&) {  // storage does not answer: no process can claim a term either
    }
    keeping_ = false;
  });
}

// Takes requests of `lockstep ctl`: `drain`, and `stop` if no ranks take it. The run answers all
// others.
void LeaderServer::take_requests() {
  if (!control_lock_) {
    make_directories(control_.path());
    control_lock_ = Descriptor(
        open((control_.path() / "supervisor").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  }
  flock(control_lock_.number(), LOCK_EX | LOCK_NB);  // a leader before may hold it for a moment
  const auto requests = control_.unanswered();
  if (!std::exchange(has_looked_, true) && !options_.is_same_start)
    old_ = {requests.begin(), requests.end()};
  for (const auto number : requests)
    try {
      const auto request = control_.read(number);
      if (request.command != "drain" && request.command != "stop") continue;
      const auto newest = EpochRecord::newest(records_.run() / "checkpoints");
      const bool trains = trainer_of(records_.run()).has_value();
      mailbox_.post(
          [this, request, is_old = old_.contains(number), trains,
           epoch = newest ? newest->number : 0] { take(request, is_old, trains, epoch); });
    } catch (const DataError&) {  // the run refuses the file
    }
}

void LeaderServer::take(const Request& request, bool is_old, bool trains, std::int64_t epoch) {
  using Phase = Leader::Phase;
  const auto phase = leader_->phase();
  const bool has_ranks = phase == Phase::run || phase == Phase::judge;
  if (request.command == "stop" && trains && has_ranks && !is_old) return;  // they take it
  // A leader that adopts does not know all hosts yet; the request is read again.
  if ((phase == Phase::adopt && !is_old) || run_over_) return;
  if (!answering_.insert(request.number).second) return;
  if (!answers_.contains(request.number)) answers_[request.number] = act_on(request, is_old);
  write_records(Clock::now());  // before the answer
  files_.run([this, request, epoch, done = answers_[request.number]] {
    try {
      const auto state = done.is_done ? RequestState::done : RequestState::refused;
      control_.answer(request, {.state = state, .message = done.text}, epoch);
    } catch (const Error& error) {  // it is answered again after the next look
      log_own_warning(error.what());
      mailbox_.post([this, number = request.number] { answering_.erase(number); });
    }
  });
}

DrainAnswer LeaderServer::act_on(const Request& request, bool is_old) {
  if (is_old) return {.is_done = false, .text = "it was sent to an earlier start; send it again"};
  if (request.is_dry_run) return {.is_done = true, .text = "nothing is changed"};
  if (request.command == "stop") {
    carry_out(leader_->stop("lockstep ctl", Clock::now(), kInterrupted));
    return {.is_done = true, .text = "the run ends; no ranks were training"};
  }
  carry_out(leader_->drain(request.target, "lockstep ctl", Clock::now()));
  return std::exchange(drained_, std::nullopt).value_or(DrainAnswer{});
}

void LeaderServer::read_progress() {
  files_.run([this] {
    SuperviseRecords::Progress progress{kUnknown, kUnknown};
    try {
      progress = records_.progress();
    } catch (const Error& error) {
      log_own_warning(error.what());
    }
    mailbox_.post([this, progress] {
      carry_out(leader_->progress(progress.saved_step, progress.last_step, progress.end_code,
                                  Clock::now()));
    });
  });
}

// Runs the operator's command without a shell.
void LeaderServer::tell_bad_host(const std::string& host, const std::string& why) {
  if (on_bad_host_.empty()) return;
  commands_.run([command = on_bad_host_, host, why] {
    std::vector<std::string> words;
    std::istringstream parts(command);
    for (std::string word; parts >> word;) {
      for (const auto& [mark, value] : {std::pair("%h", host), std::pair("%r", why)})
        if (const auto at = word.find(mark); at != std::string::npos) word.replace(at, 2, value);
      words.push_back(word);
    }
    try {
      int status = 0;
      waitpid(spawn(words, {}), &status, 0);
      if (status != 0) log_own_warning("supervise: ", command, ": failed for host ", host);
    } catch (const Error& error) {
      log_own_warning("supervise: ", error.what());
    }
  });
}

}  // namespace lockstep
