#include "train/run/requests.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/descriptor.h"
#include "core/file.h"
#include "core/system/machine.h"
#include "core/wall_clock.h"
#include "train/observe/append_only_file.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostRequestBytes = 64 << 10;
constexpr std::int64_t kKeptRequests = 100;  // with their answers, for people who look
constexpr std::int64_t kMostStep = 1'000'000'000;

// The name of the sender. It is a statement; the owner of the file is a fact.
std::string user_name() {
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : str("uid ", geteuid());
}

Request request_in(const Json& json) {
  Request request;
  request.number = integer_at(json, "number", 1, kMostRequests);
  request.command = text_at(json, "command");
  if (std::ranges::find(kRequestCommands, request.command) == kRequestCommands.end())
    throw DataError(str("unknown command \"", request.command, "\""));
  request.step = integer_at(json, "step", 0, kMostStep);
  request.skip = text_at(json, "skip");
  for (const auto& setting : json.at("settings").as_array())
    request.settings.push_back(setting.as_string());
  request.target = text_at(json, "target");
  request.is_dry_run = json.at("dry_run").as_bool();
  request.user = text_at(json, "user");
  request.host = text_at(json, "host");
  request.time_seconds = json.at("time").as_double();
  return request;
}

Json to_json(const RequestAnswer& answer) {
  Json json;
  json.set("outcome", str(kRequestStates[static_cast<std::size_t>(answer.state)]));
  json.set("message", answer.message);
  json.set("step", answer.step);
  return json;
}

}  // namespace

Json to_json(const Request& request) {
  Json json;
  json.set("number", request.number);
  json.set("command", request.command);
  json.set("step", request.step);
  json.set("skip", request.skip);
  json.set("settings", Json::Array(request.settings.begin(), request.settings.end()));
  json.set("target", request.target);
  json.set("dry_run", request.is_dry_run);
  json.set("user", request.user);
  json.set("host", request.host);
  json.set("time", request.time_seconds);
  return json;
}

std::string in_words(const Request& request) {
  std::string text = request.command;
  for (const auto& setting : request.settings)
    text += " " + setting;
  if (request.step > 0) text += str(request.command == "set" ? " --at " : " ", request.step);
  if (!request.skip.empty()) text += " --skip " + request.skip;
  if (!request.target.empty()) text += " " + request.target;
  return text;
}

std::filesystem::path ControlDirectory::file(std::int64_t number,
                                             std::string_view extension) const {
  char name[32];
  std::snprintf(name, sizeof name, "%06lld", static_cast<long long>(number));
  return path_ / str(name, extension);
}

std::vector<std::int64_t> ControlDirectory::numbers(std::string_view extension) const {
  std::vector<std::int64_t> all;
  if (!directory_exists(path_)) return all;
  for (const auto& entry : directory_entries(path_)) {
    if (entry.extension() != extension) continue;
    const auto name = entry.filename().string();
    std::int64_t number = 0;
    std::from_chars(name.data(), name.data() + name.size(), number);
    if (number > 0 && number <= kMostRequests && entry == file(number, extension))
      all.push_back(number);
  }
  std::ranges::sort(all);
  return all;
}

std::vector<std::int64_t> ControlDirectory::unanswered() const {
  const auto asked = numbers(".request"), answered = numbers(".answer");
  std::vector<std::int64_t> open;
  std::ranges::set_difference(asked, answered, std::back_inserter(open));
  return open;
}

// O_NONBLOCK, because a pipe without a writer would block.
Request ControlDirectory::read(std::int64_t number) const {
  const auto path = file(number, ".request");
  const int opened = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (opened < 0) throw DataError(str(path.string(), ": cannot open: ", reason(errno)));
  const ReadFile file(opened, path);
  struct stat status {};
  if (fstat(opened, &status) != 0) fail_io(path, "cannot look at it", errno);
  return in_context(
      [&] {
        auto request = request_in(Json::parse(read_text(file, kMostRequestBytes), "request"));
        request.uid = status.st_uid;
        if (request.number != number)
          throw DataError(str("number is ", request.number, ", expected ", number));
        return request;
      },
      path.filename().string());
}

bool ControlDirectory::is_of_this_start(std::int64_t number) const {
  std::error_code absent;
  const auto lock = std::filesystem::last_write_time(path_.parent_path() / "lock", absent);
  if (absent) return false;
  const auto written = std::filesystem::last_write_time(file(number, ".request"), absent);
  return !absent && written >= lock;
}

bool ControlDirectory::has_supervisor() const {
  const Descriptor lock(open((path_ / "supervisor").c_str(), O_RDONLY | O_CLOEXEC));
  return lock && flock(lock.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// A link never replaces a file, so two senders never get the same number.
std::int64_t ControlDirectory::send(Request request) const {
  request.user = user_name();
  request.host = host_name();
  request.time_seconds = seconds_since_1970();
  const auto newest = [&](std::string_view extension) {
    const auto all = numbers(extension);
    return all.empty() ? 0 : all.back();
  };
  const auto temporary = path_ / str("sent-", request.host, "-", getpid());
  request.number = std::max(newest(".request"), newest(".answer"));
  for (;;) {
    if (++request.number > kMostRequests)
      throw DataError(str(path_.string(), ": no number is left; expected at most ", kMostRequests));
    write_text(temporary, to_json(request).dump() + "\n");
    const auto name = file(request.number, ".request");
    const int error = link(temporary.c_str(), name.c_str()) == 0 ? 0 : errno;
    unlink(temporary.c_str());
    if (error == EEXIST) continue;
    if (error != 0) fail_io(name, "cannot create", error);
    sync_directory(path_);
    return request.number;
  }
}

void ControlDirectory::withdraw(std::int64_t number) const {
  unlink(file(number, ".request").c_str());
}

std::optional<RequestAnswer> ControlDirectory::answer_of(std::int64_t number) const {
  const auto path = file(number, ".answer");
  if (!path_exists(path)) return std::nullopt;
  return in_context(
      [&] {
        const Json json = Json::parse(read_text(path, kMostRequestBytes), "answer");
        const auto state = std::ranges::find(kRequestStates, text_at(json, "outcome"));
        if (state == kRequestStates.end()) throw DataError("unknown outcome");
        return RequestAnswer{static_cast<RequestState>(state - kRequestStates.begin()),
                             text_at(json, "message"), integer_at(json, "step", 0, kMostStep)};
      },
      path.string());
}

void ControlDirectory::record(const Request& request, const RequestAnswer& answer,
                              std::int64_t epoch) const {
  Json line = to_json(answer);
  line.set("time", seconds_since_1970());
  line.set("epoch", epoch);
  line.set("uid", request.uid);
  line.set("request", to_json(request));
  AppendOnlyFile file(log(), AppendOnlyFile::Mode::keep);
  file.append(line.dump() + "\n");
  file.sync();
}

void ControlDirectory::answer(const Request& request, const RequestAnswer& answer,
                              std::int64_t epoch) const {
  record(request, answer, epoch);
  write_text(file(request.number, ".answer"), to_json(answer).dump() + "\n");
  const auto old = request.number - kKeptRequests;
  for (const char* extension : {".request", ".answer"})
    unlink(file(old, extension).c_str());
}

void ControlDirectory::begin_after(std::int64_t number) const {
  const auto answered = numbers(".answer");
  if (number > 0 && (answered.empty() || answered.back() < number))
    write_text(file(number, ".answer"),
               to_json({.message = "of an earlier directory"}).dump() + "\n");
}

}  // namespace lockstep
