#include "core/log.h"

#include <atomic>
#include <ctime>
#include <unistd.h>

namespace lockstep {
namespace {

std::atomic<int> rank_of_process = 0;

}  // namespace

void log_as_rank(int rank) {
  rank_of_process = rank;
}

bool log_speaks_for_all() {
  return rank_of_process == 0;
}

void log_line(LogLevel level, const std::string& text) {
  const int rank = rank_of_process;
  char clock[16] = "";
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::strftime(clock, sizeof clock, "%H:%M:%S ", &local);
  const char* mark = level == LogLevel::info      ? ""
                     : level == LogLevel::warning ? "warning: "
                                                  : "error: ";
  const std::string line = str(clock, rank > 0 ? str("rank ", rank, ": ") : "", mark, text, "\n");
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace lockstep
