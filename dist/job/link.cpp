#include "dist/job/link.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

namespace lockstep {
namespace {

// Bytes that are copied at once into shared memory: while the other rank copies them out, they are
// in a cache.
constexpr std::size_t kStep = 128 << 10;

}  // namespace

Link::Link(Socket socket, std::unique_ptr<SharedRings> rings)
    : socket_(std::move(socket)), rings_(std::move(rings)) {}

void Link::send(Lane lane, std::span<const std::byte> bytes) {
  sending_.push_back({.head = {.bytes = bytes.size(), .lane = lane}, .bytes = bytes});
  ++unsent_[lane];
}

void Link::receive(Lane lane, std::span<std::byte> out) {
  receiving_[lane].push_back(out);
  deliver_early(lane);
}

bool Link::progress() {
  const bool sent = send_some(), received = receive_some();
  if (!sent && !received && closed_ && !is_idle()) throw TransientError("closed by the other end");
  return sent || received;
}

bool Link::send_some() {
  if (sending_.empty()) return false;
  auto& out = sending_.front();
  const auto count = write(out);
  out.sent += count;
  if (out.sent == sizeof out.head + out.bytes.size()) {
    --unsent_[out.head.lane];
    sending_.pop_front();
  }
  return count > 0;
}

// Transfers of another lane than this rank waits for are kept, so that none has to wait for it.
bool Link::receive_some() {
  if (has_received(parts) && has_received(messages)) return false;
  bool moved = false;
  if (!in_body_) {
    const auto head = std::as_writable_bytes(std::span(&head_, 1)).subspan(head_bytes_);
    const auto count = read(head);
    head_bytes_ += count;
    if (head_bytes_ < sizeof head_) return count > 0;
    begin_body();
    moved = true;
  }
  const auto count = read(body_.first(std::min(body_.size(), kStep)));
  body_ = body_.subspan(count);
  if (body_.empty()) end_body();
  return moved || count > 0;
}

void Link::begin_body() {
  if (head_.mark != kMark || head_.lane >= kLanes)
    throw DataError("received bytes that are no transfer");
  auto& posted = receiving_[head_.lane];
  is_early_ = posted.empty();
  body_ = is_early_ ? early_[head_.lane].emplace_back(head_.bytes) : posted.front();
  LOCKSTEP_CHECK(body_.size() == head_.bytes, "received ", head_.bytes, " bytes, expected ",
                 body_.size(), ": do all ranks of the group make the same calls?");
  in_body_ = true;
}

void Link::end_body() {
  in_body_ = false;
  head_bytes_ = 0;
  if (is_early_)
    deliver_early(head_.lane);
  else
    receiving_[head_.lane].pop_front();
}

void Link::deliver_early(std::size_t lane) {
  auto& early = early_[lane];
  const bool is_incomplete = in_body_ && is_early_ && head_.lane == lane;
  if (receiving_[lane].empty() || early.size() == (is_incomplete ? 1 : 0)) return;
  const auto out = receiving_[lane].front();
  LOCKSTEP_CHECK(out.size() == early.front().size(), "received ", early.front().size(),
                 " bytes, expected ", out.size(),
                 ": do all ranks of the group make the same calls?");
  std::copy(early.front().begin(), early.front().end(), out.begin());
  early.pop_front();
  receiving_[lane].pop_front();
}

std::size_t Link::write(const Sending& out) {
  const auto head = std::as_bytes(std::span(&out.head, 1));
  const auto head_left = head.subspan(std::min(out.sent, head.size()));
  const auto left = out.bytes.subspan(out.sent - (head.size() - head_left.size()));
  if (rings_) {
    auto count = rings_->write(head_left);
    if (count == head_left.size()) count += rings_->write(left.first(std::min(left.size(), kStep)));
    if (count > 0) wake_other(SharedRings::kData);
    return count;
  }
  std::array<iovec, 2> pieces{{{const_cast<std::byte*>(head_left.data()), head_left.size()},
                               {const_cast<std::byte*>(left.data()), left.size()}}};
  return socket_.try_send(pieces);
}

// Returns 0 if nothing has arrived.
std::size_t Link::read(std::span<std::byte> out) {
  if (out.empty()) return 0;
  if (rings_) {
    const auto count = rings_->read(out);
    if (count > 0) wake_other(SharedRings::kSpace);
    return count;
  }
  const auto count = socket_.try_receive(out);
  if (!count) throw TransientError("closed by the other end");
  return *count;
}

void Link::wake_other(std::uint32_t events) {
  if (!rings_->other_sleeps_until(events)) return;
  const std::byte any{};
  try {
    socket_.try_send(std::span(&any, 1));
  } catch (const TransientError&) {
    closed_ = true;  // bytes that it sent before are still in the ring
  }
}

pollfd Link::announce_sleep() {
  const bool receives = !has_received(parts) || !has_received(messages);
  const bool sends = !sending_.empty();
  if (rings_) {
    rings_->sleep_until((receives ? SharedRings::kData : 0) | (sends ? SharedRings::kSpace : 0));
    return {socket_.descriptor(), POLLIN, 0};
  }
  return {socket_.descriptor(), static_cast<short>((receives ? POLLIN : 0) | (sends ? POLLOUT : 0)),
          0};
}

void Link::wake_up(const pollfd& polled) {
  if (!rings_) return;
  rings_->sleep_until(0);
  if (polled.revents == 0 || closed_) return;
  std::array<std::byte, 64> ignored;
  try {
    for (std::optional<std::size_t> count = 1; count != 0U;) {
      count = socket_.try_receive(ignored);
      if (!count) throw TransientError("closed by the other end");
    }
  } catch (const TransientError&) {
    closed_ = true;
  }
}

}  // namespace lockstep
