// Log: one line an event, to standard error, with the time. Standard output belongs to
// results.
#pragma once

#include <string>

#include "core/error.h"

namespace lockstep {

enum class LogLevel : unsigned char { info, warning, error };

void log_line(LogLevel level, const std::string& text);  // thread-safe, one write(2) a line

// This process is one of several ranks: rank 0 speaks for all, the others say only what is wrong,
// with their numbers in front.
void log_as_rank(int rank);

template <class... Args>
void log_info(const Args&... args) {
  log_line(LogLevel::info, str(args...));
}
template <class... Args>
void log_warning(const Args&... args) {
  log_line(LogLevel::warning, str(args...));
}

}  // namespace lockstep
