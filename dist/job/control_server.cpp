#include "dist/job/control_server.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <list>
#include <poll.h>
#include <sys/resource.h>
#include <utility>

#include "core/log.h"
#include "core/start_thread.h"
#include "dist/job/rank_consistency.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostQueuedBytes = std::size_t{64} << 20;  // per rank; then senders wait
constexpr std::size_t kSpareStrangers = 64;
constexpr Milliseconds kLogPause{10'000};

struct Connection {
  Connection(Socket connected, const Secret& secret, Deadline until)
      : socket(std::move(connected)), session(secret, random_bytes()), deadline(until) {}

  void queue(Bytes bytes) {
    queued += bytes.size();
    if (!bytes.empty()) out.push_back(std::move(bytes));
  }
  void queue(const Frame& frame) {
    Bytes bytes;
    append(bytes, frame);
    queue(std::move(bytes));
  }
  // Sends the bytes that the other end accepts without blocking.
  void flush() {
    while (!out.empty()) {
      const auto n = socket.try_send(std::span(out.front()).subspan(sent));
      if (n == 0) return;
      sent += n;
      queued -= n;
      if (sent < out.front().size()) continue;
      out.pop_front();
      sent = 0;
    }
  }
  bool known() const { return session.authenticated(); }
  int rank() const { return session.introduction().rank; }
  bool on(Channel channel) const {
    return known() && session.introduction().channel == channel && !turned_away;
  }

  Socket socket;
  Session session;
  Deadline deadline;  // to authenticate; once `ending`: to read the remaining bytes
  std::deque<Bytes> out{};
  std::size_t sent = 0, queued = 0;  // sent bytes of out.front(); unsent bytes
  std::vector<Frame> waiting{};  // messages for ranks with full queues; reading pauses meanwhile
  bool turned_away = false;      // authenticated, but not a rank of this job
  bool ending = false;           // closed once `out` is sent
  bool over = false;
};

// Raises the descriptor limit to what a control server of options.ranks needs, and 256 for the
// rest.
const ControlServerOptions& with_descriptors(const ControlServerOptions& options) {
  const auto needed = 4 * static_cast<rlim_t>(options.ranks) + kSpareStrangers + 256;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= needed) return options;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  if (limit.rlim_cur < needed || setrlimit(RLIMIT_NOFILE, &limit) != 0)
    throw ConfigError(str("rank 0 needs ", needed, " open files for ", options.ranks,
                          " ranks, but its limit is ", limit.rlim_max,
                          "; raise it with ulimit -Hn"));
  return options;
}

// Logs closed connections of unauthenticated clients, at most one line every ten seconds.
class RejectionLog {
 public:
  void add(const std::string& peer, const std::string& why, Deadline now) {
    ++count_;
    if (now < next_) return;
    log_warning("closed ", count_, " unauthenticated", count_ == 1 ? " connection" : " connections",
                " at rank 0's port; the last, from ", peer, ": ", why);
    next_ = now + kLogPause;
    count_ = 0;
  }

 private:
  int count_ = 0;
  Deadline next_ = Deadline::min();
};

}  // namespace

class ControlServer::Server {
 public:
  explicit Server(const ControlServerOptions& options)
      : options_(with_descriptors(options)),
        listener_(listen_at(options.address, options.port)),
        control_(static_cast<std::size_t>(options.ranks)),
        heart_(static_cast<std::size_t>(options.ranks)),
        came_(static_cast<std::size_t>(options.ranks)),
        detector_(options.ranks, options.timing),
        start_(Clock::now() + options.start) {}

  std::uint16_t port() const { return listener_.port(); }

  void stop() {
    stopping_ = true;
    wake_.up();
  }

  bool wait_until_all_left(Milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return connected_ == 0; });
  }

  std::vector<int> lost() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  void run() {
    auto next = Clock::now() + options_.timing.interval;
    while (!stopping_) {
      poll_once(next);
      const auto now = Clock::now();
      if (now >= next) {
        // Late: this process was stopped and received no beats meanwhile.
        const auto late = std::chrono::duration_cast<Milliseconds>(now - next);
        if (late > options_.timing.interval) detector_.slept(late, now);
        next = now + options_.timing.interval;
        for (auto* heart : heart_)
          if (heart != nullptr) heart->queue({.kind = FrameKind::beat});
      }
      judge(now);
      expire(now);
      flush();
      pass_on_what_waits();
      remove();
    }
    flush();
  }

 private:
  void poll_once(Deadline until) {
    std::vector<pollfd> entries{{listener_.descriptor(), POLLIN, 0},
                                {wake_.descriptor(), POLLIN, 0}};
    for (const auto& connection : connections_) {
      const int reading = connection.waiting.empty() ? POLLIN : 0;
      const int writing = connection.queued > 0 ? POLLOUT : 0;
      // -1: not polled; the connection is over, and only its received messages are still forwarded.
      entries.push_back({connection.over ? -1 : connection.socket.descriptor(),
                         static_cast<short>(reading | writing), 0});
    }
    const auto left = std::chrono::ceil<Milliseconds>(until - Clock::now()).count();
    if (poll(entries.data(), entries.size(), static_cast<int>(std::max<std::int64_t>(left, 0))) <=
        0)
      return;
    std::size_t i = 2;
    for (auto& connection : connections_)
      if ((entries[i++].revents & (POLLIN | POLLERR | POLLHUP)) != 0) read(connection);
    if (entries[0].revents != 0) accept_all();
  }

  void accept_all() {
    bool any = false;
    while (auto socket = accept_from(listener_)) {
      any = true;
      const auto now = Clock::now();
      connections_.emplace_back(std::move(*socket), options_.secret, now + options_.handshake);
      const auto unknown = static_cast<std::size_t>(std::count_if(
          connections_.begin(), connections_.end(), [](auto& c) { return !c.known(); }));
      if (unknown <= 2 * control_.size() + kSpareStrangers) continue;
      const auto oldest = std::find_if(connections_.begin(), connections_.end(),
                                       [](auto& c) { return !c.known(); });
      rejected_.add(oldest->socket.peer(), "too many connections are unauthenticated", now);
      connections_.erase(oldest);
    }
    // A client waits, but descriptors or memory are exhausted.
    if (!any) std::this_thread::sleep_for(Milliseconds(10));
  }

  void read(Connection& from) {
    Bytes bytes(kPieceBytes);
    std::optional<std::size_t> count;
    try {
      count = from.socket.try_receive(bytes);
      if (count && *count == 0) return;
    } catch (const TransientError&) {  // a broken connection counts as closed
    }
    if (!count) {
      from.over = true;
      return;
    }
    const bool knew = from.known();
    try {
      Bytes answer;
      auto frames = from.session.take(std::span(bytes).first(*count), answer);
      from.queue(std::move(answer));
      if (!knew && from.known()) welcome(from);
      for (auto& frame : frames)
        if (!from.turned_away) take(from, std::move(frame));
    } catch (const DataError& error) {
      from.over = true;
      if (!knew)
        rejected_.add(from.socket.peer(), error.what(), Clock::now());
      else
        log_warning("closed the connection of rank ", from.rank(), ": ", error.what());
    }
  }

  void welcome(Connection& peer) {
    const auto& who = peer.session.introduction();
    peer.deadline = Deadline::max();
    if (who.channel == Channel::files)
      return turn_away(peer, 78, "files are not sent through the control server");
    auto& place_of = who.channel == Channel::control ? control_ : heart_;
    if (who.ranks != options_.ranks || who.rank < 0 || who.rank >= options_.ranks)
      return turn_away(peer, 78,
                       str("rank ", who.rank, " of ", who.ranks, " (host ", who.peer.host,
                           ") connected to a job of ", options_.ranks,
                           " ranks; start all ranks with the same number of ranks"));
    if (who.channel == Channel::heartbeat && !all_came_)
      return turn_away(peer, 75, "a heartbeat may start only after all ranks have connected");
    if (who.channel == Channel::control && all_came_)
      return turn_away(peer, 78,
                       str("rank ", who.rank, " (host ", who.peer.host,
                           ") connected after all ranks had connected; is another job running with "
                           "the same secret and port?"));
    auto& place = place_of[static_cast<std::size_t>(who.rank)];
    if (place != nullptr)
      return turn_away(peer, 78,
                       str("rank ", who.rank, " connected twice: from host ",
                           place->session.introduction().peer.host, ", pid ",
                           place->session.introduction().peer.pid, ", and from host ",
                           who.peer.host, ", pid ", who.peer.pid));
    place = &peer;
    if (who.channel == Channel::control) return greet_control(who);
    detector_.introduce(who.rank, who.peer);
    detector_.joined(who.rank, Clock::now());
    peer.queue({.kind = FrameKind::roster, .body = roster()});
    if (verdict_) queue_verdict(peer);
  }

  // Sends the list of ranks to all when the last rank has connected.
  void greet_control(const Introduction& who) {
    came_[static_cast<std::size_t>(who.rank)] = who.peer;
    count_connected(1);
    detector_.introduce(who.rank, who.peer);
    if (all_came_ || std::count(came_.begin(), came_.end(), std::nullopt) > 0) return;
    all_came_ = true;
    for (auto* at : control_)
      if (at != nullptr) at->queue({.kind = FrameKind::roster, .body = roster()});
  }

  Bytes roster() const {
    BodyWriter writer;
    for (const auto& peer : came_)
      writer.text(peer ? peer->host : "?").number(peer ? peer->pid : 0);
    return writer.take();
  }

  void turn_away(Connection& peer, int exit_code, const std::string& why) {
    peer.queue({.kind = FrameKind::refused, .peer = exit_code, .body = as_bytes(why)});
    peer.turned_away = true;
    end(peer);
  }

  void end(Connection& peer) {
    peer.ending = true;
    peer.deadline = Clock::now() + options_.handshake;
  }

  void take(Connection& from, Frame frame) {
    const int rank = from.rank();
    if (from.on(Channel::control)) {
      if (frame.kind != FrameKind::message || !all_came_ || frame.peer < 0 ||
          frame.peer >= options_.ranks)
        throw DataError(str("unexpected frame of kind ", static_cast<int>(frame.kind), " for rank ",
                            frame.peer));
      return pass_on(from, std::move(frame));
    }
    switch (frame.kind) {
      case FrameKind::beat: return detector_.beat(rank, decode_beat(frame.body), Clock::now());
      case FrameKind::goodbye: detector_.left(rank); return end(from);
      case FrameKind::failed:
        detector_.failed(rank, as_text(frame.body), frame.peer);
        return end(from);
      default:
        throw DataError(str("unexpected frame of kind ", static_cast<int>(frame.kind),
                            " on a heartbeat connection"));
    }
  }

  void pass_on(Connection& from, Frame frame) {
    auto* to = control_[static_cast<std::size_t>(frame.peer)];
    if (to == nullptr) return;  // it left, and all ranks were told
    if (!from.waiting.empty() || to->queued > kMostQueuedBytes) {
      from.waiting.push_back(std::move(frame));
      return;
    }
    frame.peer = from.rank();
    to->queue(frame);
  }

  // Aborts the job, once.
  void judge(Deadline now) {
    if (verdict_) return;
    if (!all_came_ && now > start_) return too_late();
    verdict_ = detector_.verdict(now);
    if (!verdict_) return;
    {
      const std::lock_guard lock(mutex_);
      lost_ = verdict_->lost;
    }
    for (auto* heart : heart_)
      if (heart != nullptr && heart->rank() != 0) queue_verdict(*heart);
    flush();
    // Rank 0 last: its process may end at once, and this thread with it.
    if (heart_[0] != nullptr) queue_verdict(*heart_[0]);
  }

  void queue_verdict(Connection& to) {
    to.queue({.kind = FrameKind::verdict,
              .peer = verdict_->exit_code,
              .body = as_bytes(verdict_->text)});
  }

  void too_late() {
    start_ = Deadline::max();
    std::vector<int> missing;
    for (std::size_t r = 0; r < came_.size(); ++r)
      if (!came_[r]) missing.push_back(static_cast<int>(r));
    const std::string why = str(rank_list(missing), " of ", came_.size(),
                                " did not connect within ", seconds_text(options_.start));
    for (auto* at : control_)
      if (at != nullptr) turn_away(*at, 75, why);
  }

  void expire(Deadline now) {
    for (auto& connection : connections_) {
      if (now < connection.deadline) continue;
      if (!connection.known())
        rejected_.add(connection.socket.peer(), "it did not authenticate in time", now);
      connection.over = true;
    }
  }

  void pass_on_what_waits() {
    for (auto& from : connections_) {
      auto waiting = std::exchange(from.waiting, {});
      for (auto& frame : waiting)
        pass_on(from, std::move(frame));
    }
    flush();
  }

  void flush() {
    for (auto& connection : connections_) {
      try {
        connection.flush();
      } catch (const TransientError&) {
        connection.over = true;
      }
      connection.over |= connection.ending && connection.queued == 0;
    }
  }

  void remove() {
    for (auto at = connections_.begin(); at != connections_.end();) {
      auto& connection = *at;
      if (!connection.over || !connection.waiting.empty()) {
        ++at;
        continue;
      }
      forget(connection);
      at = connections_.erase(at);
    }
  }

  void forget(const Connection& gone) {
    if (!gone.known()) return;
    const int rank = gone.rank();
    if (rank < 0 || rank >= options_.ranks) return;
    const auto r = static_cast<std::size_t>(rank);
    if (heart_[r] == &gone) {
      heart_[r] = nullptr;
      detector_.closed(rank);
    }
    if (control_[r] != &gone) return;
    control_[r] = nullptr;
    count_connected(-1);
    if (!all_came_) return came_[r].reset();  // it may connect again
    if (heart_[r] == nullptr) detector_.closed(rank);
    for (auto* at : control_)
      if (at != nullptr) at->queue({.kind = FrameKind::gone, .peer = rank});
  }

  void count_connected(int change) {
    const std::lock_guard lock(mutex_);
    connected_ += change;
    changed_.notify_all();
  }

  const ControlServerOptions options_;
  Socket listener_;
  Wake wake_;
  std::atomic<bool> stopping_ = false;
  std::list<Connection> connections_;         // oldest first
  std::vector<Connection*> control_, heart_;  // of each rank
  std::vector<std::optional<Peer>> came_;
  bool all_came_ = false;
  FailureDetector detector_;
  std::optional<Verdict> verdict_;
  RejectionLog rejected_;
  Deadline start_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int connected_ = 0;
  std::vector<int> lost_;  // of the verdict, for another thread
};

ControlServer::ControlServer(const ControlServerOptions& options)
    : server_(std::make_unique<Server>(options)) {
  port_ = server_->port();
  thread_ = start_thread([server = server_.get()] {
    try {
      server->run();
    } catch (const std::exception& error) {
      log_line(LogLevel::error, str("rank 0's control server stopped: ", error.what()));
    }
  });
}

ControlServer::~ControlServer() {
  server_->stop();
  thread_.join();
}

std::vector<int> ControlServer::lost() const {
  return server_->lost();
}

bool ControlServer::wait_until_all_left(Milliseconds timeout) {
  return server_->wait_until_all_left(timeout);
}

}  // namespace lockstep
