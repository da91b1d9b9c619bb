#include "dist/job/heartbeat_protocol.h"

#include <algorithm>

#include "dist/job/roster.h"

namespace lockstep {

HeartbeatProtocol::HeartbeatProtocol(const Timing& timing, Deadline now)
    : timing_(timing), heard_(now), next_(now), changed_(now) {}

std::optional<Verdict> HeartbeatProtocol::bytes(std::span<const std::byte> arrived, Deadline now) {
  reader_.add(arrived);
  while (const auto frame = reader_.next()) {
    heard_ = now;
    if (frame->kind == FrameKind::verdict)
      return Verdict{.text = as_text(frame->body), .exit_code = frame->peer};
    if (frame->kind == FrameKind::refused) throw ConfigError(as_text(frame->body));
    if (frame->kind != FrameKind::roster) continue;
    const auto roster = decode_roster(frame->body);
    if (roster.hosts.empty()) throw DataError("the list of hosts is empty");
    rank_0_ = {roster.hosts.front(), roster.pid};
  }
  return std::nullopt;
}

std::optional<Verdict> HeartbeatProtocol::time(Deadline now, FunctionRef<Activity()> ask) {
  if (now < next_) return std::nullopt;
  // Late: this process was stopped, and did not read the beats of rank 0 meanwhile.
  if (now - next_ > timing_.interval) heard_ = std::min(heard_ + (now - next_), now);
  next_ = now + timing_.interval;
  beat(now, ask());
  const auto silence = std::chrono::duration_cast<Milliseconds>(now - heard_);
  if (silence <= timing_.missed * timing_.interval) return std::nullopt;
  return lost(str(" stopped answering ", seconds_text(silence), " ago"));
}

// Appends no new beat until the last one has been sent, because the control server may not be
// reading.
void HeartbeatProtocol::beat(Deadline now, const Activity& activity) {
  if (activity.progress != activity_.progress) changed_ = now;
  activity_ = activity;
  if (!out_.empty()) return;
  const auto still = std::chrono::duration_cast<Milliseconds>(now - changed_);
  const bool watched = activity.collectives > 0;
  append(out_, {.kind = FrameKind::beat, .body = encode(Beat{activity, still, watched})});
}

Verdict HeartbeatProtocol::lost(const std::string& what) {
  Verdict verdict{.text = str("rank 0 (host ", rank_0_.host, ", pid ", rank_0_.pid, ")", what),
                  .is_own = true,
                  .lost = {0}};
  leave({.kind = FrameKind::failed, .peer = verdict.exit_code, .body = as_bytes(verdict.text)});
  return verdict;
}

void HeartbeatProtocol::leave(const Frame& last_word) {
  append(out_, last_word);
}

void HeartbeatProtocol::sent(std::size_t count) {
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace lockstep
