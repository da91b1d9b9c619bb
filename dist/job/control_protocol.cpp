#include "dist/job/control_protocol.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "dist/job/rank_consistency.h"
#include "dist/job/roster.h"

namespace lockstep {
namespace {

constexpr std::size_t kFlushedBytes = kPieceBytes;  // per rank and turn, so that a turn is short
constexpr std::size_t kFewStrangers = 512, kMoreStrangers = 64;
constexpr Milliseconds kTimeOfStranger{200};  // to send something; then it is closed if others wait
constexpr Milliseconds kGonePause{50};        // between two lists of ranks that left
constexpr Milliseconds kLogPause{10'000};

}  // namespace

struct ControlProtocol::Connection {
  Connection(int its_id, std::string its_peer, const Secret& secret, const Bytes32& random,
             Deadline arrival, Deadline until)
      : id(its_id),
        peer(std::move(its_peer)),
        session(secret, random),
        heard(arrival),
        deadline(until) {}

  void queue(SharedBytes bytes) {
    queued += bytes->size();
    out.push_back(std::move(bytes));
  }
  bool known() const { return session.authenticated(); }
  int rank() const { return session.introduction().rank; }
  bool on(Channel channel) const {
    return known() && session.introduction().channel == channel && !turned_away;
  }

  int id;
  std::string peer;
  Session session;
  Deadline heard;     // when it connected or last sent something, while it is unauthenticated
  Deadline deadline;  // to authenticate; once `ending`: to read the remaining bytes
  std::deque<SharedBytes> out{};
  std::size_t sent = 0, queued = 0;  // sent bytes of out.front(); unsent bytes
  std::vector<Frame> waiting{};  // messages for ranks with full queues; reading pauses meanwhile
  std::vector<Connection*> senders{};  // their first waiting message is for this rank
  Connections::iterator self{};
  Connections* list = nullptr;           // the list that has it
  bool reading = true, writing = false;  // as actions_ watches it
  bool touched = false;                  // in `touched_`
  bool turned_away = false;              // authenticated, but not a rank of this job
  bool ending = false;                   // closed once `out` is sent
  bool over = false;
};

ControlProtocol::SharedBytes ControlProtocol::encoded(const Frame& frame) {
  auto bytes = std::make_shared<Bytes>();
  append(*bytes, frame);
  return bytes;
}

std::size_t ControlProtocol::most_clients(int ranks) {
  return std::max(static_cast<std::size_t>(ranks) + kMoreStrangers, kFewStrangers);
}

void ControlProtocol::RejectionLog::add(const std::string& peer, const std::string& why,
                                        Deadline now) {
  ++count_;
  if (now < next_) return;
  log_warning("closed ", count_, " unauthenticated", count_ == 1 ? " connection" : " connections",
              " at rank 0's port; the last, from ", peer, ": ", why);
  next_ = now + kLogPause;
  count_ = 0;
}

ControlProtocol::ControlProtocol(const ControlServerOptions& options, ControlActions& actions,
                                 Deadline now)
    : options_(options),
      actions_(actions),
      beat_(encoded({.kind = FrameKind::beat})),
      control_(static_cast<std::size_t>(options.ranks)),
      heart_(static_cast<std::size_t>(options.ranks)),
      came_(static_cast<std::size_t>(options.ranks)),
      detector_(options.ranks, options.timing),
      start_(now + options.start),
      next_(now + options.timing.interval) {}

ControlProtocol::~ControlProtocol() = default;

int ControlProtocol::opened(const std::string& peer, const Bytes32& random, Deadline now) {
  if (free_ids_.empty()) {
    free_ids_.push_back(static_cast<int>(by_id_.size()));
    by_id_.push_back(nullptr);
  }
  const int id = free_ids_.back();
  free_ids_.pop_back();
  auto& connection =
      strangers_.emplace_back(id, peer, options_.secret, random, now, now + options_.handshake);
  connection.self = std::prev(strangers_.end());
  connection.list = &strangers_;
  by_id_[static_cast<std::size_t>(id)] = &connection;
  return id;
}

void ControlProtocol::bytes(int id, std::span<const std::byte> arrived, Deadline now) {
  auto& from = *by_id_.at(static_cast<std::size_t>(id));
  if (from.over) return;
  try {
    read(from, arrived, now);
  } catch (const std::exception& error) {
    log_warning("closed the connection from ", from.peer, ": ", error.what());
    close(from);
  }
  touch(from);
}

void ControlProtocol::closed(int id) {
  close(*by_id_.at(static_cast<std::size_t>(id)));
}

void ControlProtocol::ready(int id) {
  touch(*by_id_.at(static_cast<std::size_t>(id)));
}

void ControlProtocol::reject(int id, const std::string& why, Deadline now) {
  auto& client = *by_id_.at(static_cast<std::size_t>(id));
  rejected_.add(client.peer, why, now);
  close(client);
}

Deadline ControlProtocol::due() const {
  return gone_.empty() ? next_ : std::min<Deadline>(next_, next_gone_);
}

void ControlProtocol::time(Deadline now) {
  if (now >= next_) {
    // Late: this process was stopped and received no beats meanwhile.
    const auto late = std::chrono::duration_cast<Milliseconds>(now - next_);
    if (late > options_.timing.interval) detector_.slept(late, now);
    next_ = now + options_.timing.interval;
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

bool ControlProtocol::is_crowded() const {
  return strangers_.size() >= most_clients(options_.ranks);
}

Deadline ControlProtocol::accepts_at() const {
  return is_crowded() ? strangers_.front().heard + kTimeOfStranger : Deadline();
}

int ControlProtocol::oldest_client() const {
  return strangers_.front().id;
}

void ControlProtocol::make_room(int id, Deadline now) {
  auto& oldest = *by_id_.at(static_cast<std::size_t>(id));
  if (!oldest.over && !oldest.known() && now - oldest.heard >= kTimeOfStranger) {
    rejected_.add(oldest.peer, "too many connections are unauthenticated", now);
    close(oldest);
  }
  settle();
}

std::size_t ControlProtocol::queued_bytes() const {
  std::size_t bytes = 0;
  for (const auto* list : {&strangers_, &members_, &ending_})
    for (const auto& connection : *list) {
      bytes += connection.queued;
      for (const auto& frame : connection.waiting)
        bytes += frame.body.size();
    }
  return bytes;
}

void ControlProtocol::read(Connection& from, std::span<const std::byte> arrived, Deadline now) {
  const bool knew = from.known();
  if (!knew) {
    from.heard = now;
    move_to(strangers_, from);
  }
  try {
    Bytes answer;
    auto frames = from.session.take(arrived, answer);
    if (!answer.empty()) queue(from, std::make_shared<Bytes>(std::move(answer)));
    if (!knew && from.known()) welcome(from, now);
    for (auto& frame : frames)
      if (!from.turned_away) take(from, std::move(frame), now);
  } catch (const DataError& error) {
    if (!knew)
      rejected_.add(from.peer, error.what(), now);
    else
      log_warning("closed the connection of rank ", from.rank(), ": ", error.what());
    close(from);
  }
}

void ControlProtocol::welcome(Connection& peer, Deadline now) {
  const auto& who = peer.session.introduction();
  move_to(members_, peer);
  if (who.channel != Channel::control && who.channel != Channel::heartbeat)
    return turn_away(peer, 78, "files and tensors are not sent through the control server", now);
  auto& place_of = who.channel == Channel::control ? control_ : heart_;
  if (who.ranks != options_.ranks || who.rank < 0 || who.rank >= options_.ranks)
    return turn_away(peer, 78,
                     str("rank ", who.rank, " of ", who.ranks, " (host ", who.peer.host,
                         ") connected to a job of ", options_.ranks,
                         " ranks; start all ranks with the same number of ranks"),
                     now);
  if (who.channel == Channel::heartbeat && !all_came())
    return turn_away(peer, 75, "a heartbeat may start only after all ranks have connected", now);
  if (who.channel == Channel::control && all_came())
    return turn_away(peer, 78,
                     str("rank ", who.rank, " (host ", who.peer.host,
                         ") connected after all ranks had connected; is another job running with "
                         "the same secret and port?"),
                     now);
  auto& place = place_of[static_cast<std::size_t>(who.rank)];
  if (place != nullptr)
    return turn_away(peer, 78,
                     str("rank ", who.rank, " connected twice: from host ",
                         place->session.introduction().peer.host, ", pid ",
                         place->session.introduction().peer.pid, ", and from host ", who.peer.host,
                         ", pid ", who.peer.pid),
                     now);
  place = &peer;
  if (who.channel == Channel::control) return greet_control(who);
  detector_.introduce(who.rank, who.peer);
  detector_.joined(who.rank, now);
  if (!roster_of_0_) roster_of_0_ = encoded({.kind = FrameKind::roster, .body = roster(1)});
  queue(peer, roster_of_0_);
  if (verdict_) queue(peer, verdict_frame_);
}

// Sends the list of ranks to all when the last rank has connected.
void ControlProtocol::greet_control(const Introduction& who) {
  came_[static_cast<std::size_t>(who.rank)] = who.peer;
  count_connected(1);
  detector_.introduce(who.rank, who.peer);
  ++came_count_;
  if (all_came())
    queue_all(control_, encoded({.kind = FrameKind::roster, .body = roster(came_.size())}));
}

Bytes ControlProtocol::roster(std::size_t ranks) const {
  Roster list{.pid = came_[0]->pid};
  for (const auto& peer : std::span(came_).first(ranks))
    list.hosts.push_back(peer->host);
  return encode(list);
}

void ControlProtocol::turn_away(Connection& peer, int exit_code, const std::string& why,
                                Deadline now) {
  queue(peer, encoded({.kind = FrameKind::refused, .peer = exit_code, .body = as_bytes(why)}));
  peer.turned_away = true;
  end(peer, now);
}

void ControlProtocol::end(Connection& peer, Deadline now) {
  peer.ending = true;
  peer.deadline = now + options_.handshake;
  move_to(ending_, peer);
}

void ControlProtocol::take(Connection& from, Frame frame, Deadline now) {
  const int rank = from.rank();
  if (from.on(Channel::control)) {
    if (frame.kind != FrameKind::message || !all_came() || frame.peer < kEveryRank ||
        frame.peer >= options_.ranks)
      throw DataError(
          str("unexpected frame of kind ", static_cast<int>(frame.kind), " for rank ", frame.peer));
    return pass_on(from, std::move(frame));
  }
  switch (frame.kind) {
    case FrameKind::beat: return detector_.beat(rank, decode_beat(frame.body), now);
    case FrameKind::goodbye: detector_.left(rank); return end(from, now);
    case FrameKind::failed:
      detector_.failed(rank, as_text(frame.body), frame.peer);
      must_judge_ = true;
      return end(from, now);
    default:
      throw DataError(str("unexpected frame of kind ", static_cast<int>(frame.kind),
                          " on a heartbeat connection"));
  }
}

void ControlProtocol::pass_on(Connection& from, Frame frame) {
  auto* full = from.waiting.empty() ? full_receiver(frame.peer) : nullptr;
  if (full != nullptr) full->senders.push_back(&from);
  if (full != nullptr || !from.waiting.empty()) return from.waiting.push_back(std::move(frame));
  const int to = std::exchange(frame.peer, from.rank());
  if (to == kEveryRank) return queue_all(control_, encoded(frame));
  // A rank that left gets nothing, and all ranks were told.
  if (auto* receiver = control_[static_cast<std::size_t>(to)]) queue(*receiver, encoded(frame));
}

// A receiver of a message whose queue is full; nullptr: none.
ControlProtocol::Connection* ControlProtocol::full_receiver(int to) const {
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
void ControlProtocol::release_senders(Connection& receiver) {
  for (auto* from : std::exchange(receiver.senders, {})) {
    auto waiting = std::exchange(from->waiting, {});
    for (auto& frame : waiting)
      pass_on(*from, std::move(frame));
    touch(*from);
  }
}

// Aborts the job, once.
void ControlProtocol::judge(Deadline now) {
  if (verdict_) return;
  if (!all_came() && now > start_) return too_late(now);
  verdict_ = detector_.verdict(now);
  if (!verdict_) return;
  actions_.aborted(*verdict_);
  verdict_frame_ = encoded(
      {.kind = FrameKind::verdict, .peer = verdict_->exit_code, .body = as_bytes(verdict_->text)});
  for (auto* heart : std::span(heart_).subspan(1))
    if (heart != nullptr) queue(*heart, verdict_frame_);
  settle();
  // Rank 0 last: its process may end at once, and this thread with it.
  if (heart_[0] != nullptr) queue(*heart_[0], verdict_frame_);
}

void ControlProtocol::too_late(Deadline now) {
  start_ = Deadline::max();
  std::vector<int> missing;
  for (std::size_t r = 0; r < came_.size(); ++r)
    if (!came_[r]) missing.push_back(static_cast<int>(r));
  const std::string why = str(rank_list(missing), " of ", came_.size(), " did not connect within ",
                              seconds_text(options_.start));
  for (auto* at : control_)
    if (at != nullptr) turn_away(*at, 75, why, now);
}

void ControlProtocol::expire(Connections& connections, Deadline now) {
  for (auto& connection : connections) {
    if (now < connection.deadline) continue;
    if (!connection.known() && !connection.over)
      rejected_.add(connection.peer, "it did not authenticate in time", now);
    close(connection);
  }
}

void ControlProtocol::move_to(Connections& list, Connection& connection) {
  list.splice(list.end(), *connection.list, connection.self);
  connection.list = &list;
}

void ControlProtocol::queue(Connection& to, SharedBytes bytes) {
  if (to.over) return;
  to.queue(std::move(bytes));
  touch(to);
}

void ControlProtocol::queue_all(const std::vector<Connection*>& connections,
                                const SharedBytes& bytes) {
  for (auto* to : connections)
    if (to != nullptr) queue(*to, bytes);
}

// settle() removes it. Messages that it sent before are still forwarded.
void ControlProtocol::close(Connection& connection) {
  if (std::exchange(connection.over, true)) return;
  actions_.close(connection.id);
  touch(connection);
}

void ControlProtocol::touch(Connection& connection) {
  if (!std::exchange(connection.touched, true)) touched_.push_back(&connection);
}

// Sends some of the bytes that the other end accepts without blocking.
void ControlProtocol::flush(Connection& to) {
  for (std::size_t flushed = 0; !to.out.empty() && flushed < kFlushedBytes;) {
    const auto rest = std::span(*to.out.front()).subspan(to.sent);
    const auto n = actions_.send(to.id, rest.first(std::min(rest.size(), kFlushedBytes)));
    if (n == 0) return;
    flushed += n;
    to.sent += n;
    to.queued -= n;
    if (to.sent < to.out.front()->size()) continue;
    to.out.pop_front();
    to.sent = 0;
  }
}

// Sends queued bytes, forwards waiting messages, and removes closed connections.
void ControlProtocol::settle() {
  while (!touched_.empty()) {
    auto& connection = *touched_.back();
    touched_.pop_back();
    settle(connection);
  }
}

// Sends the ranks that left to all. Many may leave at once, so they share a message.
void ControlProtocol::announce_gone(Deadline now) {
  if (gone_.empty() || now < next_gone_) return;
  next_gone_ = now + kGonePause;
  BodyWriter ranks;
  for (const int rank : std::exchange(gone_, {}))
    ranks.number(std::int32_t{rank});
  queue_all(control_, encoded({.kind = FrameKind::gone, .body = ranks.take()}));
}

void ControlProtocol::settle(Connection& connection) {
  try {
    if (!connection.over) flush(connection);
  } catch (const TransientError&) {
    close(connection);
  }
  if (connection.ending && connection.queued == 0) close(connection);
  if (connection.over || connection.queued <= kMostQueuedBytes / 2) release_senders(connection);
  if (!connection.over) {
    const bool reading = connection.waiting.empty(), writing = connection.queued > 0;
    const bool was_reading = std::exchange(connection.reading, reading);
    const bool was_writing = std::exchange(connection.writing, writing);
    if (reading != was_reading || writing != was_writing)
      actions_.watch(connection.id, reading, writing);
  } else if (connection.waiting.empty()) {
    forget(connection);
    by_id_[static_cast<std::size_t>(connection.id)] = nullptr;
    free_ids_.push_back(connection.id);
    connection.list->erase(connection.self);
    return;
  }
  connection.touched = false;  // not earlier: bytes queued since then are sent after EPOLLOUT
}

void ControlProtocol::forget(const Connection& gone) {
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

void ControlProtocol::count_connected(int change) {
  connected_ += change;
  actions_.connected(connected_);
}

}  // namespace lockstep
