// What tests of files share: a temporary directory, a small full-able file system, and the errors
// that bad files must give.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <sys/mount.h>
#include <unistd.h>

#include "core/error.h"

namespace lockstep::testing {

// Removed, with all in it, at the end.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "lockstep-XXXXXX").string();
    LOCKSTEP_CHECK(mkdtemp(pattern.data()) != nullptr, "cannot create ", pattern);
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Where thousands of small files cost nothing: in memory, if there is such a file system.
inline std::filesystem::path fast_directory() {
  const char* memory = "/dev/shm";
  return access(memory, W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

// While it lives, permissions bind this process, even started by root.
class AsNobody {
 public:
  AsNobody() : root_(geteuid() == 0) {
    LOCKSTEP_CHECK(!root_ || seteuid(65534) == 0, "cannot become another user");
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;
  ~AsNobody() {
    if (root_ && seteuid(0) != 0) std::abort();
  }

 private:
  bool root_;
};

// A file system in memory of `size_bytes`, to be filled; only root may mount one.
class SmallDisk {
 public:
  explicit SmallDisk(std::int64_t size_bytes) {
    const std::string options = str("size=", size_bytes);
    mounted_ = mount("none", directory_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) umount2(directory_.path().c_str(), MNT_DETACH);
  }

  bool mounted() const { return mounted_; }
  void resize(std::int64_t size_bytes) const {
    const std::string options = str("size=", size_bytes);
    LOCKSTEP_CHECK(mount("none", path().c_str(), "tmpfs", MS_REMOUNT, options.c_str()) == 0,
                   "cannot resize ", path().string());
  }
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
  bool mounted_ = false;
};

// What a file holds, and the other way round, by other means than core/file.
inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  LOCKSTEP_CHECK(in.good(), "cannot open ", path.string());
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}
inline void spit(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::remove(path);  // emptied in place, it would be flushed to the disk
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The text of the E that `act` throws; fails the test where it throws none.
template <class E, class Act>
std::string message_of(const Act& act) {
  try {
    act();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// In place: a file that is emptied and written again is flushed by some file systems.
inline void flip(const std::filesystem::path& file, std::size_t byte, int bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(byte));
  const int old = stream.get();
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(static_cast<char>(old ^ (1 << bit)));
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in: " << text;
}

}  // namespace lockstep::testing
