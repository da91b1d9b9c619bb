// Heartbeat: tells rank 0 every second that this rank lives and what it does, over a connection and
// from a thread of its own, and ends this rank when the job has to end: another rank died, stalls
// or failed (rank 0's verdict, dist/job/watch.h), or rank 0 itself is silent.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

#include "dist/job/watch.h"

namespace lockstep {

class Heartbeat {
 public:
  using Ask = std::function<Activity()>;
  using OnVerdict = std::function<void(const Verdict& verdict)>;

  // After Control: all ranks are there then. Throws TransientError where rank 0 cannot be reached.
  // Both are called in the heartbeat's thread:
  //   ask         what this rank does now, for each beat
  //   on_verdict  once, when the job has to end. Usually it calls end_process()
  Heartbeat(const Membership& membership, const Timing& timing, Ask ask, OnVerdict on_verdict);
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;
  // Without goodbye() or failed() before, all others take it as this rank's death.
  ~Heartbeat();

  // This rank ends, well or with an error that ends all others at once. They return when rank 0
  // knows, or after two seconds.
  void goodbye();
  void failed(const std::string& message, int exit_code);

 private:
  void run();
  void beat(Deadline now);
  bool listen(Deadline now);  // false: it is over
  void leave(const Frame& frame);
  bool leaving();
  void say_last_word();
  void conclude(const std::string& what);

  Timing timing_;
  Ask ask_;
  OnVerdict on_verdict_;
  Socket socket_;
  Wake wake_;
  FrameReader reader_;
  Bytes out_;
  Peer rank_0_{};
  Deadline heard_{};
  Activity activity_{};
  Deadline changed_{};  // when activity_.progress did

  std::mutex mutex_;  // of what follows
  bool leaving_ = false;
  Frame last_word_{};
  std::thread thread_;
};

// What a rank does at a verdict: gives `last_words` a bounded time, logs it where it is rank 0,
// which speaks for all, or where rank 0 is silent, and ends the process with the verdict's exit
// code; without destructors, which may hang where a collective does.
struct EndOptions {
  int rank = 0;
  std::function<void()> last_words{};
  Milliseconds grace{2'000};
};
[[noreturn]] void end_process(const Verdict& verdict, const EndOptions& options);

}  // namespace lockstep
