// Progress writes a line to standard error about work of more than a second: share, rate, ETA. On a
// terminal it rewrites the line; elsewhere it writes a new line every ten seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep {

class Progress {
 public:
  Progress(std::string what, std::int64_t total_bytes);  // total_bytes 0: unknown
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // clears the line of a terminal

  void advance(std::int64_t bytes);                           // from one thread
  void skip(std::int64_t bytes) { skipped_bytes_ += bytes; }  // done before; not in rates

 private:
  using Clock = std::chrono::steady_clock;
  void print(double seconds);

  std::string what_;
  std::int64_t total_bytes_, done_bytes_ = 0, skipped_bytes_ = 0;
  Clock::time_point begin_, next_;
  bool terminal_, printed_ = false;
};

}  // namespace lockstep
