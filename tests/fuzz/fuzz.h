// Parts of a fuzz target. X_fuzz.cpp has the namespace lockstep::fuzz::X_fuzz with seeds(), which
// the driver mutates, and check() of one input, and ends with
//   const Target target("X", seeds, check);
// A check rejects bad input with a DataError. A crash, a sanitizer's report or any other exception
// is a finding.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "core/error.h"

namespace lockstep::fuzz {

using Seeds = std::vector<std::string>;  // small inputs; the target accepts at least one

// MemoryFile is a file in memory, for readers that need a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    LOCKSTEP_CHECK(descriptor_ >= 0, "no file in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(descriptor_); }

  std::filesystem::path path() const { return str("/proc/self/fd/", descriptor_); }
  void set(std::string_view bytes) const {
    LOCKSTEP_CHECK(ftruncate(descriptor_, 0) == 0, "cannot empty the file in memory");
    LOCKSTEP_CHECK(
        pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "cannot fill the file in memory");
  }

 private:
  int descriptor_;
};

// NamedFile is a file in a directory of its own, for writers that replace it.
class NamedFile {
 public:
  NamedFile() {
    std::string name = "/dev/shm/lockstep-fuzz-XXXXXX";
    LOCKSTEP_CHECK(mkdtemp(name.data()) != nullptr, "no directory in memory");
    directory_ = name;
  }
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  ~NamedFile() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  std::filesystem::path path() const { return directory_ / "file"; }
  void set(std::string_view bytes) const {
    std::ofstream(path(), std::ios::binary).write(bytes.data(), std::ssize(bytes));
  }

 private:
  std::filesystem::path directory_;
};

inline int accepted = 0;  // by may_refuse(); the driver checks that it grows with some seed

// act() may reject its input.
template <class Act>
void may_refuse(Act&& act) {
  try {
    act();
    ++accepted;
  } catch (const DataError&) {
  }
}

// act() must accept its input: a DataError is a finding.
template <class Act>
decltype(auto) must_accept(Act&& act) {
  try {
    return act();
  } catch (const DataError& error) {
    LOCKSTEP_FAIL(error.what());
  }
}

// `again` reads a text and writes its values. It must accept `written` and return the same text.
template <class Again>
void check_reads_back(const std::string& written, Again&& again) {
  const std::string twice = must_accept([&] { return again(written); });
  LOCKSTEP_CHECK(twice == written, written, " reads back as ", twice);
}

// The bytes of numbers, as a file has them.
template <class Number>
std::string raw(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}
template <class Number>
std::string raw(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}
template <class Number>
Number number_at(std::string_view bytes, std::size_t at) {
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// Target is a fuzz target. Its constructor adds it to all().
class Target {
 public:
  Target(const std::string& name, Seeds (*make_seeds)(),
         std::function<void(std::string_view)> check)
      : seeds(make_seeds), check_(std::move(check)) {
    LOCKSTEP_CHECK(all().emplace(name, this).second, "two fuzz targets ", name);
  }
  // check() reads a file, which is the input.
  Target(const std::string& name, Seeds (*make_seeds)(),
         void (*check)(const std::filesystem::path&))
      : Target(name, make_seeds, [check](std::string_view input) {
          static const MemoryFile file;
          file.set(input);
          check(file.path());
        }) {}
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  static std::map<std::string, const Target*>& all() {
    static std::map<std::string, const Target*> targets;
    return targets;
  }

  void run(std::string_view input) const {
    may_refuse([&] { check_(input); });
  }
  Seeds (*const seeds)();

 private:
  std::function<void(std::string_view)> check_;
};

}  // namespace lockstep::fuzz
