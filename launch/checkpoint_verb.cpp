#include "launch/checkpoint_verb.h"

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <sys/stat.h>

#include "checkpoint/checkpointer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::int64_t bytes_of(const fs::path& directory) {
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(directory))
    if (entry.is_regular_file()) bytes += static_cast<std::int64_t>(entry.file_size());
  return bytes;
}

std::string saved_at(const fs::path& checkpoint) {
  struct stat status {};
  if (stat(checkpoint.c_str(), &status) != 0) return "?";
  std::tm local{};
  localtime_r(&status.st_mtime, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

std::string state_of(const fs::path& checkpoint) {
  try {
    verify_checkpoint(checkpoint, Depth::contents);
    return "valid";
  } catch (const DataError& e) {
    return str("damaged: ", e.what());
  }
}

}  // namespace

int checkpoint_list(const std::string& run) {
  const auto directory = fs::path(run) / "checkpoints";
  if (!fs::is_directory(directory))
    throw DataError(str(run, ": expected the directory of a run, with checkpoints/"));
  for (const auto step : checkpoint_steps(directory)) {
    const auto path = checkpoint_path(directory, step);
    char line[64];
    std::snprintf(line, sizeof line, "step %9lld  %10.1f MiB  ", static_cast<long long>(step),
                  static_cast<double>(bytes_of(path)) / (1 << 20));
    std::cout << line << saved_at(path) << "  " << state_of(path) << "\n";
  }
  std::cout.flush();
  if (!std::cout) throw Error("cannot write to standard output");
  return 0;
}

}  // namespace lockstep
