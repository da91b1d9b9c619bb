// OutputDirectory is a directory that appears under its name only when it is complete.
#pragma once

#include <filesystem>

namespace lockstep {

class OutputDirectory {
 public:
  // Creates OUT.tmp-PID beside `out`. `out` must not exist or must be an empty directory. Throws
  // UsageError otherwise, or if OUT.tmp-PID exists, DataError if it cannot be created.
  explicit OutputDirectory(const std::filesystem::path& out);
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  ~OutputDirectory();  // removes the directory unless it was committed

  const std::filesystem::path& path() const { return temporary_; }
  void commit();  // all files in it must be synced

 private:
  std::filesystem::path out_, temporary_;  // temporary_: set once this process has created it
};

// Returns the output path ending with its name: d for `d/`. Throws UsageError for `.` and `/`.
std::filesystem::path output_path(const std::filesystem::path& out);

// Throws UsageError if `out` exists and is not an empty directory.
void refuse_taken(const std::filesystem::path& out);

}  // namespace lockstep
