// Log writes one line per event to standard error, with the time. Standard output is for results.
#pragma once

#include <string>

#include "core/error.h"

namespace lockstep {

enum class LogLevel : unsigned char { info, warning, error };

void log_line(LogLevel level, const std::string& text);  // thread-safe, one write(2) per line

// Sets the rank of this process. Lines of ranks other than 0 start with "rank N: ".
void log_as_rank(int rank);
bool log_speaks_for_all();  // true on rank 0 and in a single process

// For events that are the same on all ranks: only rank 0 logs them.
template <class... Args>
void log_info(const Args&... args) {
  if (log_speaks_for_all()) log_line(LogLevel::info, str(args...));
}
template <class... Args>
void log_warning(const Args&... args) {
  if (log_speaks_for_all()) log_line(LogLevel::warning, str(args...));
}
// For events of one rank, for example of its disk or its GPU: each rank logs its own.
template <class... Args>
void log_own_warning(const Args&... args) {
  log_line(LogLevel::warning, str(args...));
}

}  // namespace lockstep
