#include "dist/job/control_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <utility>

#include "core/descriptor.h"
#include "core/log.h"
#include "core/start_thread.h"
#include "dist/job/rank_consistency.h"
#include "dist/job/roster.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostQueuedBytes = std::size_t{64} << 20;  // per rank; then senders wait
constexpr std::size_t kFlushedBytes = kPieceBytes;  // per rank and turn, so that a turn is short
constexpr std::size_t kFewStrangers = 512, kMoreStrangers = 64;
constexpr int kAcceptedAtOnce = 256;
constexpr Milliseconds kTimeOfStranger{200};  // to send something; then it is closed if others wait
constexpr Milliseconds kGonePause{50};        // between two lists of ranks that left
constexpr Milliseconds kLongestTurn{60'000};
constexpr Milliseconds kLogPause{10'000};
constexpr int kEvents = 1024;  // at most, of one call of epoll_wait

using SharedBytes = std::shared_ptr<const Bytes>;  // one copy for all receivers

SharedBytes encoded(const Frame& frame) {
  auto bytes = std::make_shared<Bytes>();
  append(*bytes, frame);
  return bytes;
}

struct Connection {
  Connection(Socket connected, const Secret& secret, Deadline arrival, Deadline until)
      : socket(std::move(connected)),
        session(secret, random_bytes()),
        heard(arrival),
        deadline(until) {}

  void queue(SharedBytes bytes) {
    queued += bytes->size();
    out.push_back(std::move(bytes));
  }
  // Sends some of the bytes that the other end accepts without blocking.
  void flush() {
    for (std::size_t flushed = 0; !out.empty() && flushed < kFlushedBytes;) {
      const auto rest = std::span(*out.front()).subspan(sent);
      const auto n = socket.try_send(rest.first(std::min(rest.size(), kFlushedBytes)));
      if (n == 0) return;
      flushed += n;
      sent += n;
      queued -= n;
      if (sent < out.front()->size()) continue;
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
  Deadline heard;     // when it connected or last sent something, while it is unauthenticated
  Deadline deadline;  // to authenticate; once `ending`: to read the remaining bytes
  std::deque<SharedBytes> out{};
  std::size_t sent = 0, queued = 0;  // sent bytes of out.front(); unsent bytes
  std::vector<Frame> waiting{};  // messages for ranks with full queues; reading pauses meanwhile
  std::vector<Connection*> senders{};  // their first waiting message is for this rank
  std::list<Connection>::iterator self{};
  std::list<Connection>* list = nullptr;  // the list that has it
  std::uint32_t events = 0;               // of epoll
  bool touched = false;                   // in `touched_`
  bool turned_away = false;               // authenticated, but not a rank of this job
  bool ending = false;                    // closed once `out` is sent
  bool over = false;
};

std::size_t most_strangers(int ranks) {
  return std::max(static_cast<std::size_t>(ranks) + kMoreStrangers, kFewStrangers);
}

// Raises the descriptor limit to what a control server of options.ranks needs, and 256 for the
// rest.
const ControlServerOptions& with_descriptors(const ControlServerOptions& options) {
  const auto needed = 2 * static_cast<rlim_t>(options.ranks) + most_strangers(options.ranks) + 256;
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
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        control_(static_cast<std::size_t>(options.ranks)),
        heart_(static_cast<std::size_t>(options.ranks)),
        came_(static_cast<std::size_t>(options.ranks)),
        detector_(options.ranks, options.timing),
        start_(Clock::now() + options.start) {
    if (!epoll_) throw TransientError("cannot create an epoll descriptor");
    watch(EPOLL_CTL_ADD, listener_.descriptor(), EPOLLIN, &listener_);
    watch(EPOLL_CTL_ADD, wake_.descriptor(), EPOLLIN, &wake_);
  }

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
      wait_for_events(next);
      const auto now = Clock::now();
      if (now >= next) {
        // Late: this process was stopped and received no beats meanwhile.
        const auto late = std::chrono::duration_cast<Milliseconds>(now - next);
        if (late > options_.timing.interval) detector_.slept(late, now);
        next = now + options_.timing.interval;
        for (auto* heart : heart_)
          if (heart != nullptr) queue(*heart, beat_);
        must_judge_ = true;
        expire(strangers_, now);
        expire(ending_, now);
      }
      announce_gone(now);
      settle();
      if (std::exchange(must_judge_, false)) judge(now);
      settle();
    }
  }

 private:
  using Connections = std::list<Connection>;

  void watch(int operation, int descriptor, std::uint32_t events, void* what) const {
    epoll_event event{.events = events, .data = {.ptr = what}};
    if (epoll_ctl(epoll_.number(), operation, descriptor, &event) != 0)
      throw TransientError(str("cannot watch a connection: ", reason(errno)));
  }

  void wait_for_events(Deadline until) {
    if (!accepting_) until = std::min<Deadline>(until, may_accept_at());
    if (!gone_.empty()) until = std::min<Deadline>(until, next_gone_);
    const auto left = std::clamp(std::chrono::ceil<Milliseconds>(until - Clock::now()),
                                 Milliseconds(0), kLongestTurn);
    std::array<epoll_event, kEvents> events;
    const int count =
        epoll_wait(epoll_.number(), events.data(), kEvents, static_cast<int>(left.count()));
    bool client_waits = !accepting_ && Clock::now() >= may_accept_at();
    for (int i = 0; i < count; ++i) {
      const auto& [happened, data] = events[static_cast<std::size_t>(i)];
      if (data.ptr == &listener_)
        client_waits = true;
      else if (data.ptr != &wake_)
        serve(*static_cast<Connection*>(data.ptr), happened);
    }
    if (client_waits) accept_all();  // last: it may remove connections
  }

  // An error ends one connection, not the server.
  void serve(Connection& connection, std::uint32_t happened) {
    if (connection.over) return;
    try {
      if ((happened & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) read(connection);
    } catch (const std::exception& error) {
      log_warning("closed the connection from ", connection.socket.peer(), ": ", error.what());
      close(connection);
    }
    touch(connection);
  }

  // When the next client may be accepted: at once, or when the oldest unauthenticated one has had
  // its time.
  Deadline may_accept_at() const {
    return strangers_.size() < most_strangers(options_.ranks)
               ? Deadline()
               : strangers_.front().heard + kTimeOfStranger;
  }

  // While too many clients are unauthenticated, new ones wait in the queue of the listener.
  void accept_all() {
    int accepted = 0;
    bool all = false;
    for (auto now = Clock::now(); now >= may_accept_at(); now = Clock::now()) {
      if (strangers_.size() >= most_strangers(options_.ranks)) {
        make_room(now);
        continue;
      }
      if (accepted == kAcceptedAtOnce) return;  // the listener reports the others again
      auto socket = accept_from(listener_);
      all = !socket;
      if (all) break;
      ++accepted;
      admit(std::move(*socket), now);
    }
    if (std::exchange(accepting_, all) != all)
      watch(EPOLL_CTL_MOD, listener_.descriptor(), all ? EPOLLIN : 0u, &listener_);
    // A client waits, but descriptors or memory are exhausted.
    if (all && accepted == 0) std::this_thread::sleep_for(Milliseconds(10));
  }

  void admit(Socket socket, Deadline now) {
    auto& connection =
        strangers_.emplace_back(std::move(socket), options_.secret, now, now + options_.handshake);
    connection.self = std::prev(strangers_.end());
    connection.list = &strangers_;
    connection.events = EPOLLIN;
    try {
      watch(EPOLL_CTL_ADD, connection.socket.descriptor(), EPOLLIN, &connection);
    } catch (const TransientError& error) {
      rejected_.add(connection.socket.peer(), error.what(), now);
      strangers_.pop_back();
    }
  }

  // Closes the oldest unauthenticated client, unless it has sent something that was not read yet.
  void make_room(Deadline now) {
    auto& oldest = strangers_.front();
    serve(oldest, EPOLLIN);
    if (!oldest.over && !oldest.known() && now - oldest.heard >= kTimeOfStranger) {
      rejected_.add(oldest.socket.peer(), "too many connections are unauthenticated", now);
      close(oldest);
    }
    settle();
  }

  void read(Connection& from) {
    std::optional<std::size_t> count;
    try {
      count = from.socket.try_receive(buffer_);
      if (count && *count == 0) return;
    } catch (const TransientError&) {  // a broken connection counts as closed
    }
    if (!count) return close(from);
    const bool knew = from.known();
    if (!knew) {
      from.heard = Clock::now();
      move_to(strangers_, from);
    }
    try {
      Bytes answer;
      auto frames = from.session.take(std::span(buffer_).first(*count), answer);
      if (!answer.empty()) queue(from, std::make_shared<Bytes>(std::move(answer)));
      if (!knew && from.known()) welcome(from);
      for (auto& frame : frames)
        if (!from.turned_away) take(from, std::move(frame));
    } catch (const DataError& error) {
      if (!knew)
        rejected_.add(from.socket.peer(), error.what(), Clock::now());
      else
        log_warning("closed the connection of rank ", from.rank(), ": ", error.what());
      close(from);
    }
  }

  void welcome(Connection& peer) {
    const auto& who = peer.session.introduction();
    move_to(members_, peer);
    if (who.channel != Channel::control && who.channel != Channel::heartbeat)
      return turn_away(peer, 78, "files and tensors are not sent through the control server");
    auto& place_of = who.channel == Channel::control ? control_ : heart_;
    if (who.ranks != options_.ranks || who.rank < 0 || who.rank >= options_.ranks)
      return turn_away(peer, 78,
                       str("rank ", who.rank, " of ", who.ranks, " (host ", who.peer.host,
                           ") connected to a job of ", options_.ranks,
                           " ranks; start all ranks with the same number of ranks"));
    if (who.channel == Channel::heartbeat && !all_came())
      return turn_away(peer, 75, "a heartbeat may start only after all ranks have connected");
    if (who.channel == Channel::control && all_came())
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
    if (!roster_of_0_) roster_of_0_ = encoded({.kind = FrameKind::roster, .body = roster(1)});
    queue(peer, roster_of_0_);
    if (verdict_) queue(peer, verdict_frame_);
  }

  // Sends the list of ranks to all when the last rank has connected.
  void greet_control(const Introduction& who) {
    came_[static_cast<std::size_t>(who.rank)] = who.peer;
    count_connected(1);
    detector_.introduce(who.rank, who.peer);
    ++came_count_;
    if (all_came())
      queue_all(control_, encoded({.kind = FrameKind::roster, .body = roster(came_.size())}));
  }

  Bytes roster(std::size_t ranks) const {
    Roster list{.pid = came_[0]->pid};
    for (const auto& peer : std::span(came_).first(ranks))
      list.hosts.push_back(peer->host);
    return encode(list);
  }

  // It stays true: a rank that leaves later has come.
  bool all_came() const { return came_count_ == options_.ranks; }

  void turn_away(Connection& peer, int exit_code, const std::string& why) {
    queue(peer, encoded({.kind = FrameKind::refused, .peer = exit_code, .body = as_bytes(why)}));
    peer.turned_away = true;
    end(peer);
  }

  void end(Connection& peer) {
    peer.ending = true;
    peer.deadline = Clock::now() + options_.handshake;
    move_to(ending_, peer);
  }

  void take(Connection& from, Frame frame) {
    const int rank = from.rank();
    if (from.on(Channel::control)) {
      if (frame.kind != FrameKind::message || !all_came() || frame.peer < kEveryRank ||
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
        must_judge_ = true;
        return end(from);
      default:
        throw DataError(str("unexpected frame of kind ", static_cast<int>(frame.kind),
                            " on a heartbeat connection"));
    }
  }

  void pass_on(Connection& from, Frame frame) {
    auto* full = from.waiting.empty() ? full_receiver(frame.peer) : nullptr;
    if (full != nullptr) full->senders.push_back(&from);
    if (full != nullptr || !from.waiting.empty()) return from.waiting.push_back(std::move(frame));
    const int to = std::exchange(frame.peer, from.rank());
    if (to == kEveryRank) return queue_all(control_, encoded(frame));
    // A rank that left gets nothing, and all ranks were told.
    if (auto* receiver = control_[static_cast<std::size_t>(to)]) queue(*receiver, encoded(frame));
  }

  // A receiver of a message whose queue is full; nullptr: none.
  Connection* full_receiver(int to) const {
    const auto is_full = [](const Connection* at) {
      return at != nullptr && !at->over && at->queued > kMostQueuedBytes;
    };
    if (to != kEveryRank) {
      auto* receiver = control_[static_cast<std::size_t>(to)];
      return is_full(receiver) ? receiver : nullptr;
    }
    const auto found = std::ranges::find_if(control_, is_full);
    return found == control_.end() ? nullptr : *found;
  }

  // Forwards the messages that waited for this rank.
  void release_senders(Connection& receiver) {
    for (auto* from : std::exchange(receiver.senders, {})) {
      auto waiting = std::exchange(from->waiting, {});
      for (auto& frame : waiting)
        pass_on(*from, std::move(frame));
      touch(*from);
    }
  }

  // Aborts the job, once.
  void judge(Deadline now) {
    if (verdict_) return;
    if (!all_came() && now > start_) return too_late();
    verdict_ = detector_.verdict(now);
    if (!verdict_) return;
    {
      const std::lock_guard lock(mutex_);
      lost_ = verdict_->lost;
    }
    verdict_frame_ = encoded({.kind = FrameKind::verdict,
                              .peer = verdict_->exit_code,
                              .body = as_bytes(verdict_->text)});
    for (auto* heart : std::span(heart_).subspan(1))
      if (heart != nullptr) queue(*heart, verdict_frame_);
    settle();
    // Rank 0 last: its process may end at once, and this thread with it.
    if (heart_[0] != nullptr) queue(*heart_[0], verdict_frame_);
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

  void expire(Connections& connections, Deadline now) {
    for (auto& connection : connections) {
      if (now < connection.deadline) continue;
      if (!connection.known() && !connection.over)
        rejected_.add(connection.socket.peer(), "it did not authenticate in time", now);
      close(connection);
    }
  }

  void move_to(Connections& list, Connection& connection) {
    list.splice(list.end(), *connection.list, connection.self);
    connection.list = &list;
  }

  void queue(Connection& to, SharedBytes bytes) {
    if (to.over) return;
    to.queue(std::move(bytes));
    touch(to);
  }

  void queue_all(const std::vector<Connection*>& connections, const SharedBytes& bytes) {
    for (auto* to : connections)
      if (to != nullptr) queue(*to, bytes);
  }

  // settle() removes it. Messages that it sent before are still forwarded.
  void close(Connection& connection) {
    if (std::exchange(connection.over, true)) return;
    watch(EPOLL_CTL_DEL, connection.socket.descriptor(), 0, nullptr);
    touch(connection);
  }

  void touch(Connection& connection) {
    if (!std::exchange(connection.touched, true)) touched_.push_back(&connection);
  }

  // Sends queued bytes, forwards waiting messages, and removes closed connections.
  void settle() {
    while (!touched_.empty()) {
      auto& connection = *touched_.back();
      touched_.pop_back();
      settle(connection);
    }
  }

  // Sends the ranks that left to all. Many may leave at once, so they share a message.
  void announce_gone(Deadline now) {
    if (gone_.empty() || now < next_gone_) return;
    next_gone_ = now + kGonePause;
    BodyWriter ranks;
    for (const int rank : std::exchange(gone_, {}))
      ranks.number(std::int32_t{rank});
    queue_all(control_, encoded({.kind = FrameKind::gone, .body = ranks.take()}));
  }

  void settle(Connection& connection) {
    try {
      if (!connection.over) connection.flush();
    } catch (const TransientError&) {
      close(connection);
    }
    if (connection.ending && connection.queued == 0) close(connection);
    if (connection.over || connection.queued <= kMostQueuedBytes / 2) release_senders(connection);
    if (!connection.over) {
      const std::uint32_t events =
          (connection.waiting.empty() ? EPOLLIN : 0u) | (connection.queued > 0 ? EPOLLOUT : 0u);
      if (std::exchange(connection.events, events) != events)
        watch(EPOLL_CTL_MOD, connection.socket.descriptor(), events, &connection);
    } else if (connection.waiting.empty()) {
      forget(connection);
      connection.list->erase(connection.self);
      return;
    }
    connection.touched = false;  // not earlier: bytes queued since then are sent after EPOLLOUT
  }

  void forget(const Connection& gone) {
    if (!gone.known()) return;
    const int rank = gone.rank();
    if (rank < 0 || rank >= options_.ranks) return;
    const auto r = static_cast<std::size_t>(rank);
    if (heart_[r] == &gone) {
      heart_[r] = nullptr;
      report_closed(rank);
    }
    if (control_[r] != &gone) return;
    control_[r] = nullptr;
    count_connected(-1);
    if (!all_came()) {  // it may connect again
      came_[r].reset();
      --came_count_;
      return;
    }
    if (heart_[r] == nullptr) report_closed(rank);
    gone_.push_back(rank);
  }

  void report_closed(int rank) { must_judge_ |= detector_.closed(rank); }

  void count_connected(int change) {
    const std::lock_guard lock(mutex_);
    connected_ += change;
    changed_.notify_all();
  }

  const ControlServerOptions options_;
  Socket listener_;
  Wake wake_;
  Descriptor epoll_;
  std::atomic<bool> stopping_ = false;
  bool accepting_ = true;
  Bytes buffer_ = Bytes(kPieceBytes);
  const SharedBytes beat_ = encoded({.kind = FrameKind::beat});

  Connections strangers_;  // in the order in which they were heard
  Connections members_, ending_;
  std::vector<Connection*> touched_;          // by events since the last settle()
  std::vector<Connection*> control_, heart_;  // of each rank
  std::vector<std::optional<Peer>> came_;
  int came_count_ = 0;
  std::vector<int> gone_;  // ranks whose departure is not announced yet
  Deadline next_gone_{};   // when it may be
  SharedBytes roster_of_0_;

  FailureDetector detector_;
  bool must_judge_ = false;
  std::optional<Verdict> verdict_;
  SharedBytes verdict_frame_;
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
