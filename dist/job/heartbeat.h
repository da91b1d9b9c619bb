// Heartbeat reports this rank's activity to rank 0 every second, from its own thread and over its
// own connection, by HeartbeatProtocol. It ends this rank when the job must be aborted: another
// rank died, stalled or failed (rank 0's verdict, dist/job/failure_detector.h), or rank 0 stopped
// answering.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

#include "dist/job/heartbeat_protocol.h"

namespace lockstep {

class Heartbeat {
 public:
  using Ask = std::function<Activity()>;
  using OnVerdict = std::function<void(const Verdict& verdict)>;

  // Make it after Control, when all ranks have connected. Throws TransientError if rank 0 cannot be
  // reached. The heartbeat's thread calls both functions:
  //   ask         returns this rank's activity, for each beat
  //   on_verdict  is called once, when the job must be aborted; it usually calls end_process()
  Heartbeat(const Membership& membership, const Timing& timing, Ask ask, OnVerdict on_verdict);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  // Without an earlier goodbye() or failed(), all other ranks treat it as this rank's death.
  ~Heartbeat();

  // Report that this rank ends: without an error, or with one that aborts all other ranks at once.
  // Both return when rank 0 has the report, or after two seconds.
  void goodbye();
  void failed(const std::string& message, int exit_code);

 private:
  void run();
  std::optional<Verdict> turn();
  void send();
  void leave(const Frame& frame);
  bool leaving();
  void report_end();
  void conclude(const Verdict& verdict);

  Ask ask_;
  OnVerdict on_verdict_;
  Socket socket_;
  Wake wake_;
  HeartbeatProtocol protocol_;

  std::mutex mutex_;  // guards the next two
  bool leaving_ = false;
  Frame last_word_{};
  std::thread thread_;
};

// Ends the process after a verdict, with its exit code. Runs `last_words` for at most `grace`. Logs
// the verdict on rank 0, and on any rank that concluded it by itself. Runs no destructors, because
// they may hang in a collective.
struct EndOptions {
  int rank = 0;
  std::function<void()> last_words{};
  Milliseconds grace{2'000};
};
[[noreturn]] void end_process(const Verdict& verdict, const EndOptions& options);

}  // namespace lockstep
