// Requests are commands for a run while it trains, as files in RUN/control/ (docs/formats.md):
//
//   000007.request   written by `lockstep ctl`; complete before it has this name
//   000007.answer    written by the run
//   log.jsonl        audit trail: a line before each act, and a line with its outcome
//   supervisor       locked by the leader of a supervised run, which carries out `drain`, and
//   `stop`
//                    while no ranks train
//
// A user who may write to the directory may command the run.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace lockstep {

struct Request {
  std::int64_t number = 0;
  std::string command;                  // one of kRequestCommands
  std::int64_t step = 0;                // of rollback and release; of set: --at; 0: not given
  std::string skip{};                   // of rollback: "FIRST..LAST", or ""
  std::vector<std::string> settings{};  // of set: "KEY=VALUE"
  std::string target{};                 // of drain: the host
  bool is_dry_run = false;              // only the answer is wanted
  std::string user{}, host{};           // of the sender, as it states them
  double time_seconds = 0;              // since 1970
  std::int64_t uid = -1;                // owner of the file, which the sender cannot choose
};
inline constexpr std::array<std::string_view, 8> kRequestCommands{
    "save", "release", "pause", "resume", "stop", "rollback", "set", "drain"};

Json to_json(const Request& request);
std::string in_words(const Request& request);  // "rollback 100 --skip 120..130"

enum class RequestState : unsigned char { taken, done, refused, failed };
inline constexpr std::array<std::string_view, 4> kRequestStates{"taken", "done", "refused",
                                                                "failed"};
struct RequestAnswer {
  RequestState state = RequestState::done;
  std::string message;
  std::int64_t step = 0;  // the step after which it took effect, or at which it was refused
};

// Requests are numbered from 1. A number travels with the stop signal of a step (RunPosition).
inline constexpr std::int64_t kMostRequests = (1 << 22) - 1;

class ControlDirectory {
 public:
  explicit ControlDirectory(const std::filesystem::path& run) : path_(run / "control") {}
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log() const { return path_ / "log.jsonl"; }

  // Numbers of the requests without an answer, in order. Other files are ignored.
  std::vector<std::int64_t> unanswered() const;
  // Reads a request. Throws DataError if it is not a small regular file with a valid request.
  Request read(std::int64_t number) const;
  // Whether a request was written after the run's lock was taken, by the clock of the file system.
  bool is_of_this_start(std::int64_t number) const;
  // Whether a supervisor holds the lock of `supervisor`.
  bool has_supervisor() const;

  // Sends a request as the next number, which it returns. Throws as fail_io() does.
  std::int64_t send(Request request) const;
  void withdraw(std::int64_t number) const;  // if the request is still there
  std::optional<RequestAnswer> answer_of(std::int64_t number) const;

  // Appends a line to the audit trail; it is on the disk on return.
  void record(const Request& request, const RequestAnswer& answer, std::int64_t epoch) const;
  // Answers a request; first in the audit trail. Removes files of much older requests.
  void answer(const Request& request, const RequestAnswer& answer, std::int64_t epoch) const;
  // Lets the next request have a number above `number`.
  void begin_after(std::int64_t number) const;

 private:
  // Numbers of the files with this extension, in order.
  std::vector<std::int64_t> numbers(std::string_view extension) const;
  std::filesystem::path file(std::int64_t number, std::string_view extension) const;

  std::filesystem::path path_;
};

}  // namespace lockstep
