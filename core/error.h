// Error is the base of all exceptions that end a run. LOCKSTEP_CHECK states a contract.
//
// LOCKSTEP_CHECK is always on, and its message must name the values that violate the contract.
// Destructors never throw. main() (launch/main.cpp) catches errors and exits with exit_code().
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace lockstep {

std::string reason(int error);  // the system's text for a value of errno

// A violated contract or a faulty environment. Derived types give the cause, so that a launcher can
// decide from the exit code (sysexits.h) whether to retry.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual int exit_code() const { return 1; }
};

class UsageError : public Error {  // an invalid command line
 public:
  using Error::Error;
  int exit_code() const override { return 64; }
};

// A file is invalid, or a path leads to no file. The message has the file and the offset.
class DataError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 65; }
};

// This process cannot open a file now. The contents of the file may still be valid.
class AccessError : public DataError {
 public:
  using DataError::DataError;
};

// Storage cannot be read or written now: a disk is full or faulty, a limit is reached, or a file
// system does not respond. The same command may succeed later. core/file.h chooses it by errno.
class StorageError : public AccessError {
 public:
  using AccessError::AccessError;
  int exit_code() const override { return 74; }
};

// A server or a file system denies access: credentials or permissions are missing or insufficient.
class RefusedError : public AccessError {
 public:
  using AccessError::AccessError;
  int exit_code() const override { return 77; }
};

// A server does not respond, or only with errors, after all retries. A later start may succeed.
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

class ConfigError : public Error {  // invalid configuration; names file, line, key and remedy
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

// Throws `text` as an error with that exit code. Used for errors that another process reports.
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

// Calls act(). A DataError, or an error of a derived type, gets the prefix "WHERE: ".
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

// These are macros because clang 14 (used by clang-tidy here) has no std::source_location.
#define LOCKSTEP_FAIL(...) ::lockstep::fail(::lockstep::str(__VA_ARGS__), __FILE__, __LINE__)
#define LOCKSTEP_CHECK(condition, ...)            \
  do {                                            \
    if (!(condition)) LOCKSTEP_FAIL(__VA_ARGS__); \
  } while (0)
