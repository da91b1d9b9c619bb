#include "core/log.h"

#include <ctime>
#include <unistd.h>

namespace lockstep {

void log_line(LogLevel level, const std::string& text) {
  char clock[16] = "";
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::strftime(clock, sizeof clock, "%H:%M:%S ", &local);
  const char* mark = level == LogLevel::info      ? ""
                     : level == LogLevel::warning ? "warning: "
                                                  : "error: ";
  const std::string line = str(clock, mark, text, "\n");
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace lockstep
