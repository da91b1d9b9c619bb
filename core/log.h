// Log: one line an event, to standard error, with the time. Standard output belongs to
// results.
#pragma once

#include <string>

#include "core/error.h"

namespace lockstep {

enum class LogLevel : unsigned char { info, warning, error };

void log_line(LogLevel level, const std::string& text);  // thread-safe, one write(2) a line

// This process is one of several ranks: their numbers stand in front of what they say.
void log_as_rank(int rank);
bool log_speaks_for_all();  // it is rank 0, or the only one

// Of what is the same on all ranks: rank 0 says it.
template <class... Args>
void log_info(const Args&... args) {
  if (log_speaks_for_all()) log_line(LogLevel::info, str(args...));
}
template <class... Args>
void log_warning(const Args&... args) {
  if (log_speaks_for_all()) log_line(LogLevel::warning, str(args...));
}
// Of what is this rank's own, as its disk and its GPU are: each says it.
template <class... Args>
void log_own_warning(const Args&... args) {
  log_line(LogLevel::warning, str(args...));
}

}  // namespace lockstep
