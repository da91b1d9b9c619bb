// Errors: one exception family for what a run cannot survive, one macro to state a contract.
//
// CHECK is always on and its message must name the values that broke the contract. Destructors
// never throw; main() is the only catch site (launch/main.cpp) and exits with exit_code().
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace lockstep {

std::string reason(int error);  // the system's text of a value of errno

// A broken contract or environment. The derived types say whose fault it is, so that a launcher
// can tell from the exit code (sysexits.h) whether trying again makes sense.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual int exit_code() const { return 1; }
};

class UsageError : public Error {  // the command line
 public:
  using Error::Error;
  int exit_code() const override { return 64; }
};

// A file is not what it claims to be, or a path leads to no such file; names file and offset.
class DataError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 65; }
};

// This process may not or cannot open a file now, which says nothing of what it holds.
class AccessError : public DataError {
 public:
  using DataError::DataError;
};

// Storage cannot be read or written now: a disk is full or fails, a limit is reached, a file system
// does not answer. The same command may succeed later. core/file.h chooses it by errno.
class StorageError : public AccessError {
 public:
  using AccessError::AccessError;
  int exit_code() const override { return 74; }
};

// A server or a file system refuses it to this process: credentials or permissions are missing,
// wrong or not enough.
class RefusedError : public AccessError {
 public:
  using AccessError::AccessError;
  int exit_code() const override { return 77; }
};

// A server that does not answer, or not as it should, for as long as it is asked: later it may.
class UnreachableError : public AccessError {
 public:
  using AccessError::AccessError;
  int exit_code() const override { return 75; }
};

class TransientError : public Error {  // the same command may succeed later or elsewhere
 public:
  using Error::Error;
  int exit_code() const override { return 75; }
};

class ConfigError : public Error {  // what a person wrote; names file, line, key and the remedy
 public:
  using Error::Error;
  int exit_code() const override { return 78; }
};

// Concatenates its arguments with operator<<: str("rank ", 3, " of ", 8).
template <class... Args>
std::string str(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

// Throws `what` as an error of the type of `error`.
[[noreturn]] inline void throw_like(const DataError& error, const std::string& what) {
  if (dynamic_cast<const UnreachableError*>(&error) != nullptr) throw UnreachableError(what);
  if (dynamic_cast<const RefusedError*>(&error) != nullptr) throw RefusedError(what);
  if (dynamic_cast<const StorageError*>(&error) != nullptr) throw StorageError(what);
  if (dynamic_cast<const AccessError*>(&error) != nullptr) throw AccessError(what);
  throw DataError(what);
}

// Throws `text` as the error of that exit code, which another process told.
[[noreturn]] inline void throw_as(int exit_code, const std::string& text) {
  switch (exit_code) {
    case 65: throw DataError(text);
    case 74: throw StorageError(text);
    case 75: throw TransientError(text);
    case 77: throw RefusedError(text);
    case 78: throw ConfigError(text);
    default: throw Error(text);
  }
}

// act(); what a DataError, of whatever type, says of it gets `where...` and ": " in front.
template <class Act, class... Where>
decltype(auto) in_context(Act&& act, const Where&... where) {
  try {
    return act();
  } catch (const DataError& error) {
    throw_like(error, str(where..., ": ", error.what()));
  }
}

[[noreturn]] inline void fail(const std::string& what, const char* file, int line) {
  throw Error(str(what, " (", file, ":", line, ")"));
}

}  // namespace lockstep

// Macros because clang 14 (clang-tidy here) has no std::source_location.
#define LOCKSTEP_FAIL(...) ::lockstep::fail(::lockstep::str(__VA_ARGS__), __FILE__, __LINE__)
#define LOCKSTEP_CHECK(condition, ...)            \
  do {                                            \
    if (!(condition)) LOCKSTEP_FAIL(__VA_ARGS__); \
  } while (0)
