#include "dist/job/heartbeat.h"

#include <algorithm>
#include <array>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include "core/log.h"
#include "core/start_thread.h"

namespace lockstep {
namespace {

constexpr Milliseconds kGoodbyeTime{2'000};

}  // namespace

Heartbeat::Heartbeat(const Membership& membership, const Timing& timing, Ask ask,
                     OnVerdict on_verdict)
    : ask_(std::move(ask)),
      on_verdict_(std::move(on_verdict)),
      socket_(join(membership, Channel::heartbeat, Clock::now() + membership.start)),
      protocol_(timing, Clock::now()) {
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
  for (;;) {
    pollfd entries[] = {{socket_.descriptor(), POLLIN, 0}, {wake_.descriptor(), POLLIN, 0}};
    const auto left = std::chrono::ceil<Milliseconds>(protocol_.due() - Clock::now()).count();
    poll(entries, 2, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (leaving()) return report_end();
    if (const auto verdict = turn()) return conclude(*verdict);
  }
}

std::optional<Verdict> Heartbeat::turn() {
  const auto now = Clock::now();
  try {
    std::array<std::byte, 4096> bytes;
    for (;;) {
      const auto count = socket_.try_receive(bytes);
      if (!count) return protocol_.lost(" died: it closed its connection");
      if (*count == 0) break;
      if (auto verdict = protocol_.bytes(std::span(bytes).first(*count), now)) return verdict;
    }
    if (now < protocol_.due()) return std::nullopt;
    auto verdict = protocol_.time(now, ask_);
    if (!verdict) send();
    return verdict;
  } catch (const Error& error) {
    return protocol_.lost(str(" is unreachable: ", error.what()));
  }
}

void Heartbeat::send() {
  protocol_.sent(socket_.try_send(protocol_.unsent()));
}

bool Heartbeat::leaving() {
  const std::lock_guard lock(mutex_);
  return leaving_;
}

// A conclusion of this rank is sent too.
void Heartbeat::conclude(const Verdict& verdict) {
  if (verdict.is_own) {
    if (leaving()) return;
    try {
      send();
    } catch (const TransientError&) {  // rank 0 is not alive
    }
  }
  on_verdict_(verdict);
}

void Heartbeat::report_end() {
  {
    const std::lock_guard lock(mutex_);
    protocol_.leave(last_word_);
  }
  const auto deadline = Clock::now() + kGoodbyeTime;
  try {
    socket_.send_all(protocol_.unsent(), deadline);
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
