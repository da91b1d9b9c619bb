#include "data/pack/progress.h"

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>

#include "core/log.h"
#include "core/units.h"

namespace lockstep {
namespace {

void write_error(const std::string& text) {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

Progress::Progress(std::string what, std::int64_t total_bytes)
    : what_(std::move(what)),
      total_bytes_(total_bytes),
      begin_(Clock::now()),
      next_(begin_ + std::chrono::seconds(1)),
      terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_ && printed_) write_error("\r\033[K");
}

void Progress::advance(std::int64_t bytes) {
  done_bytes_ += bytes;
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::seconds(10));
  print(std::chrono::duration<double>(now - begin_).count());
}

void Progress::print(double seconds) {
  printed_ = true;
  const auto done = static_cast<double>(skipped_bytes_ + done_bytes_);
  const auto total = static_cast<double>(total_bytes_);
  const double rate = static_cast<double>(done_bytes_) / seconds;
  std::string line = str(what_, ' ', human_bytes(done));
  if (total_bytes_ > 0) {
    char share[32];
    std::snprintf(share, sizeof share, " %.1f%%", std::min(100.0, 100 * done / total));
    line += str(" of ", human_bytes(total), share);
  }
  line += str(" | ", human_bytes(rate), "/s");
  if (total_bytes_ > 0) line += str(" | eta ", human_eta((total - done) / rate));
  if (terminal_)
    write_error("\r" + line + "\033[K");
  else
    log_info(line);
}

}  // namespace lockstep
