#include "dist/job/control.h"

#include <algorithm>

#include "core/start_thread.h"
#include "core/zstd.h"
#include "dist/job/roster.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostWaitingBytes = std::size_t{1} << 30;
constexpr Milliseconds kSendTime{60'000};
constexpr Milliseconds kAnswerTime{5'000};  // after the deadline, for rank 0 to name missing ranks
constexpr Milliseconds kLeaveTime{2'000};

constexpr std::size_t kPieceOfAnswer = std::size_t{8} << 20;

}  // namespace

Control::Control(const Membership& membership) : rank_(membership.rank), ranks_(membership.ranks) {
  const auto deadline = Clock::now() + membership.start;
  gone_.resize(static_cast<std::size_t>(ranks_));
  socket_ = join(membership, Channel::control, deadline);
  await_roster(deadline + kAnswerTime);
  thread_ = start_thread([this] { read(); });
}

Control::~Control() {
  // The server reads everything that was sent, then closes. Closing earlier could discard messages.
  socket_.finish_sending();
  {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, kLeaveTime, [&] { return !lost_.empty(); });
  }
  socket_.shut();
  thread_.join();
}

void Control::await_roster(Deadline deadline) {
  for (;;) {
    while (auto frame = reader_.next()) {
      if (frame->kind == FrameKind::refused) throw_as(frame->peer, as_text(frame->body));
      LOCKSTEP_CHECK(frame->kind == FrameKind::roster,
                     "expected the list of ranks, got a frame of kind ",
                     static_cast<int>(frame->kind));
      hosts_ = decode_roster(frame->body).hosts;
      LOCKSTEP_CHECK(std::ssize(hosts_) == ranks_, "expected the hosts of ", ranks_, " ranks, got ",
                     hosts_.size());
      return;
    }
    Bytes bytes(kPieceBytes);
    const auto count = socket_.receive_some(bytes, deadline);
    if (count == 0)
      throw TransientError(str("rank 0 (", socket_.peer(),
                               ") closed its connection before all ranks had connected"));
    reader_.add(std::span(bytes).first(count));
  }
}

void Control::read() {
  try {
    Bytes bytes(kPieceBytes);
    for (;;) {
      while (auto frame = reader_.next())
        take(std::move(*frame));
      const auto count = socket_.receive_some(bytes, Deadline::max());
      if (count == 0) break;
      reader_.add(std::span(bytes).first(count));
    }
    lose(str("rank 0 (host ", hosts_[0], ") closed its connection"));
  } catch (const Error& error) {
    lose(str("rank 0 (host ", hosts_[0], ") is unreachable: ", error.what()));
  }
}

void Control::take(Frame frame) {
  const std::lock_guard lock(mutex_);
  const auto check = [this](int rank) {
    if (rank < 0 || rank >= ranks_)
      throw DataError(str("received a frame about rank ", rank, " of ", ranks_, " ranks"));
    return static_cast<std::size_t>(rank);
  };
  check(frame.peer);
  if (frame.kind == FrameKind::gone) {
    for (BodyReader reader(frame.body); !reader.at_end();)
      gone_[check(reader.number<std::int32_t>())] = true;
  } else if (frame.kind == FrameKind::message) {
    waiting_bytes_ += frame.body.size();
    if (waiting_bytes_ > kMostWaitingBytes)
      throw DataError(str("the control message queue exceeds ", kMostWaitingBytes,
                          " bytes: messages are not being received"));
    inbox_[{frame.peer, frame.tag}].push_back(std::move(frame.body));
  } else {
    throw DataError(str("received an unexpected frame of kind ", static_cast<int>(frame.kind)));
  }
  arrived_.notify_all();
}

void Control::lose(const std::string& why) {
  const std::lock_guard lock(mutex_);
  lost_ = why;
  arrived_.notify_all();
}

std::string Control::describe(const std::vector<int>& ranks) const {
  constexpr std::size_t kMostNamed = 8;
  std::string text;
  for (const int rank : std::span(ranks).first(std::min(ranks.size(), kMostNamed)))
    text += str(text.empty() ? "" : ", ", "rank ", rank, " (host ",
                hosts_.at(static_cast<std::size_t>(rank)), ")");
  if (ranks.size() > kMostNamed) text += str(" and ", ranks.size() - kMostNamed, " more");
  return text;
}

std::vector<std::string> Control::hosts(const std::vector<int>& ranks) const {
  std::vector<std::string> found;
  for (const int rank : ranks)
    if (const auto& host = hosts_.at(static_cast<std::size_t>(rank));
        std::ranges::find(found, host) == found.end())
      found.push_back(host);
  return found;
}

void Control::send(int to, const std::string& tag, std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK(kEveryRank <= to && to < ranks(), "cannot send to rank ", to, " of ", ranks(),
                 " ranks");
  Bytes out;
  append(out, {FrameKind::message, to, tag, {bytes.begin(), bytes.end()}});
  {
    const std::lock_guard lock(mutex_);
    if (!lost_.empty()) throw TransientError(lost_);
  }
  const std::lock_guard lock(sending_);
  try {
    socket_.send_all(out, Clock::now() + kSendTime);
  } catch (const TransientError&) {
    socket_.shut();  // part of a frame may have been sent, so no other frame can follow
    throw;
  }
}

Bytes Control::receive(int from, const std::string& tag, Milliseconds timeout) {
  try {
    return receive_by(from, tag, Clock::now() + timeout);
  } catch (const TransientError& error) {
    throw TransientError(str(error.what(), " (waited up to ", seconds_text(timeout), ")"));
  }
}

Bytes Control::receive_by(int from, const std::string& tag, Deadline deadline) {
  LOCKSTEP_CHECK(0 <= from && from < ranks(), "cannot receive from rank ", from, " of ", ranks(),
                 " ranks");
  std::unique_lock lock(mutex_);
  const Key key{from, tag};
  const auto gone = [&] { return static_cast<bool>(gone_[static_cast<std::size_t>(from)]); };
  arrived_.wait_until(lock, deadline,
                      [&] { return inbox_.contains(key) || gone() || !lost_.empty(); });
  const auto found = inbox_.find(key);
  if (found != inbox_.end()) {
    Bytes bytes = std::move(found->second.front());
    found->second.pop_front();
    if (found->second.empty()) inbox_.erase(found);
    waiting_bytes_ -= bytes.size();
    return bytes;
  }
  if (!lost_.empty()) throw TransientError(lost_);
  throw TransientError(str("received no message '", tag, "' from ", describe({from}),
                           gone() ? ", which closed its connection" : ""));
}

std::vector<Bytes> Control::collect(const std::string& tag, std::span<const std::byte> bytes,
                                    Milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  send(0, tag, bytes);
  std::vector<Bytes> all(rank_ == 0 ? hosts_.size() : 0);
  std::vector<int> missing;
  for (std::size_t r = 0; r < all.size(); ++r) {
    try {
      all[r] = receive_by(static_cast<int>(r), tag, deadline);
    } catch (const TransientError&) {
      missing.push_back(static_cast<int>(r));
    }
  }
  if (!missing.empty())
    throw TransientError(
        str(tag, ": no message from ", describe(missing), " within ", seconds_text(timeout)));
  return all;
}

std::vector<Bytes> Control::gather(const std::string& tag, std::span<const std::byte> bytes,
                                   Milliseconds timeout) {
  return collect("gather " + tag, bytes, timeout);
}

Bytes Control::broadcast(const std::string& tag, std::span<const std::byte> bytes,
                         Milliseconds timeout) {
  const std::string own = "broadcast " + tag;
  if (rank_ == 0) send(kEveryRank, own, bytes);
  return receive(0, own, timeout);
}

// Rank 0 computes one answer from the bytes of all ranks, or an error, and sends it to every rank.
// The first message has the exit code of the error or 0, the size of the answer, and its first
// piece; the other messages have the other pieces.
Bytes Control::round(const std::string& tag, std::span<const std::byte> bytes, Milliseconds timeout,
                     const AtRoot& at_root) {
  std::int32_t exit_code = 0;
  Bytes answer;
  try {
    const auto all = collect(tag, bytes, timeout);
    if (rank_ == 0) answer = at_root(all);
  } catch (const Error& caught) {
    if (rank_ != 0) throw;
    exit_code = caught.exit_code();
    answer = as_bytes(caught.what());
  }
  const auto said = tag + "!";
  if (rank_ == 0) {
    auto rest = std::span<const std::byte>(answer);
    BodyWriter writer;
    writer.number(exit_code).number(std::uint64_t{rest.size()});
    do {
      const auto piece = rest.first(std::min(rest.size(), kPieceOfAnswer));
      writer.text(as_text(piece));
      send(kEveryRank, said, writer.take());
      rest = rest.subspan(piece.size());
    } while (!rest.empty());
  }
  const auto deadline = Clock::now() + timeout + kAnswerTime;
  const Bytes first = receive_by(0, said, deadline);
  BodyReader reader(first);
  exit_code = reader.number<std::int32_t>();
  const auto size = reader.number<std::uint64_t>();
  auto text = reader.text();
  while (text.size() < size) {
    const Bytes next = receive_by(0, said, deadline);
    text += BodyReader(next).text();
  }
  if (exit_code != 0) throw_as(exit_code, text);
  return as_bytes(text);
}

std::vector<Bytes> Control::all_gather(const std::string& tag, std::span<const std::byte> bytes,
                                       Milliseconds timeout) {
  const auto together =
      round("all_gather " + tag, bytes, timeout, [](const std::vector<Bytes>& all) {
        BodyWriter writer;
        for (const auto& one : all)
          writer.text(as_text(one));
        return zstd_compressed(writer.take());
      });
  std::vector<Bytes> all;
  const Bytes texts = zstd_decompressed(together, kMostWaitingBytes);
  for (BodyReader reader(texts); !reader.at_end();)
    all.push_back(as_bytes(reader.text()));
  return all;
}

void Control::barrier(const std::string& tag, Milliseconds timeout) {
  round("barrier " + tag, {}, timeout, [](const std::vector<Bytes>&) { return Bytes(); });
}

}  // namespace lockstep
