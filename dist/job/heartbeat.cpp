#include "dist/job/heartbeat.h"

#include <algorithm>
#include <array>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include "core/log.h"
#include "core/start_thread.h"
#include "dist/job/roster.h"

namespace lockstep {
namespace {

constexpr Milliseconds kGoodbyeTime{2'000};

}  // namespace

Heartbeat::Heartbeat(const Membership& membership, const Timing& timing, Ask ask,
                     OnVerdict on_verdict)
    : timing_(timing),
      ask_(std::move(ask)),
      on_verdict_(std::move(on_verdict)),
      socket_(join(membership, Channel::heartbeat, Clock::now() + membership.start)),
      heard_(Clock::now()),
      changed_(heard_) {
  thread_ = start_thread([this] { run(); });
}

Heartbeat::~Heartbeat() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;  // this end closes the connection
  }
  socket_.shut();
  leave({});
}

void Heartbeat::goodbye() {
  leave({.kind = FrameKind::goodbye});
}

void Heartbeat::failed(const std::string& message, int exit_code) {
  leave({.kind = FrameKind::failed, .peer = exit_code, .body = as_bytes(message)});
}

void Heartbeat::leave(const Frame& frame) {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    last_word_ = frame;
  }
  wake_.up();
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::run() {
  auto next = Clock::now();
  for (;;) {
    pollfd entries[] = {{socket_.descriptor(), POLLIN, 0}, {wake_.descriptor(), POLLIN, 0}};
    const auto left = std::chrono::ceil<Milliseconds>(next - Clock::now()).count();
    poll(entries, 2, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (leaving()) return report_end();
    // Arrived bytes are read before any conclusion, because this process may have been stopped.
    const auto now = Clock::now();
    try {
      if (!listen(now)) return;
      if (now < next) continue;
      if (now - next > timing_.interval) heard_ = std::min(heard_ + (now - next), now);
      next = now + timing_.interval;
      beat(now);
    } catch (const Error& error) {
      return conclude(str(" is unreachable: ", error.what()));
    }
    const auto silence = std::chrono::duration_cast<Milliseconds>(now - heard_);
    if (silence > timing_.missed * timing_.interval)
      return conclude(str(" stopped answering ", seconds_text(silence), " ago"));
  }
}

bool Heartbeat::leaving() {
  const std::lock_guard lock(mutex_);
  return leaving_;
}

// Sends no new beat until the last one has been sent, because the control server may not be
// reading.
void Heartbeat::beat(Deadline now) {
  const auto activity = ask_();
  if (activity.progress != activity_.progress) changed_ = now;
  activity_ = activity;
  if (out_.empty()) {
    const auto still = std::chrono::duration_cast<Milliseconds>(now - changed_);
    const bool watched = activity.collectives > 0;
    append(out_, {.kind = FrameKind::beat, .body = encode(Beat{activity, still, watched})});
  }
  const auto sent = socket_.try_send(out_);
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(sent));
}

bool Heartbeat::listen(Deadline now) {
  std::array<std::byte, 4096> bytes;
  for (;;) {
    const auto count = socket_.try_receive(bytes);
    if (!count) {
      conclude(" died: it closed its connection");
      return false;
    }
    if (*count == 0) return true;
    reader_.add(std::span(bytes).first(*count));
    while (const auto frame = reader_.next()) {
      heard_ = now;
      if (frame->kind == FrameKind::verdict) {
        on_verdict_({.text = as_text(frame->body), .exit_code = frame->peer});
        return false;
      }
      if (frame->kind == FrameKind::refused) throw ConfigError(as_text(frame->body));
      if (frame->kind != FrameKind::roster) continue;
      const auto roster = decode_roster(frame->body);
      if (roster.hosts.empty()) throw DataError("the list of hosts is empty");
      rank_0_ = {roster.hosts.front(), roster.pid};
    }
  }
}

// A conclusion of this rank is about rank 0. It is sent too, so that rank 0, if alive, and all
// other ranks receive it.
void Heartbeat::conclude(const std::string& what) {
  if (leaving()) return;
  const Verdict verdict{
      .text = str("rank 0 (host ", rank_0_.host, ", pid ", rank_0_.pid, ")", what),
      .is_own = true,
      .lost = {0}};
  append(out_,
         {.kind = FrameKind::failed, .peer = verdict.exit_code, .body = as_bytes(verdict.text)});
  try {
    socket_.try_send(out_);
  } catch (const TransientError&) {  // rank 0 is not alive
  }
  on_verdict_(verdict);
}

void Heartbeat::report_end() {
  {
    const std::lock_guard lock(mutex_);
    append(out_, last_word_);
  }
  const auto deadline = Clock::now() + kGoodbyeTime;
  try {
    socket_.send_all(out_, deadline);
    socket_.finish_sending();
    std::array<std::byte, 1024> rest;
    while (socket_.receive_some(rest, deadline) > 0) {
    }
  } catch (const TransientError&) {  // rank 0 is gone
  }
}

void end_process(const Verdict& verdict, const EndOptions& options) {
  // From here on the process ends even if the log or a disk hangs.
  try {
    start_thread([grace = options.grace, exit_code = verdict.exit_code] {
      std::this_thread::sleep_for(grace);
      _exit(exit_code);
    }).detach();
  } catch (const TransientError& error) {
    log_line(LogLevel::error, error.what());
  }
  if (options.rank == 0 || verdict.is_own)
    log_line(LogLevel::error, str("run aborted: ", verdict.text));
  try {
    if (options.last_words) options.last_words();
  } catch (const std::exception& error) {
    log_line(LogLevel::error, error.what());
  }
  _exit(verdict.exit_code);
}

}  // namespace lockstep
