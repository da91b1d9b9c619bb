// OutputDirectory: a directory that appears under its name when all in it is complete, or not at
// all.
#pragma once

#include <filesystem>

namespace lockstep {

class OutputDirectory {
 public:
  // Makes OUT.tmp-PID beside `out`, which must not exist, or be an empty directory. Throws
  // UsageError otherwise, or where OUT.tmp-PID exists, DataError where it cannot be made.
  explicit OutputDirectory(const std::filesystem::path& out);
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  ~OutputDirectory();  // removes it where it was not committed

  const std::filesystem::path& path() const { return temporary_; }
  void commit();  // every file in it must be synced

 private:
  std::filesystem::path out_, temporary_;  // the second: once it is ours
};

// The output's path with its name at the end: `d/` names d. Throws UsageError for `.` and `/`.
std::filesystem::path output_path(const std::filesystem::path& out);

// Throws UsageError where `out` exists and is not an empty directory.
void refuse_taken(const std::filesystem::path& out);

}  // namespace lockstep
