#include "dist/job/agent_socket.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fcntl.h>
#include <limits>
#include <mutex>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/descriptor.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostPlaceBytes = 64 << 10, kMostErrorBytes = 8 << 10;

// The socket; no number: no agent started this process.
Descriptor take_socket() {
  const char* text = std::getenv("LOCKSTEP_AGENT");
  if (text == nullptr) return {};
  const std::string_view digits(text);
  int number = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  struct stat status {};
  if (number < 0 || fstat(number, &status) != 0 || !S_ISSOCK(status.st_mode))
    throw ConfigError(str("LOCKSTEP_AGENT=", digits,
                          " is not an open socket; unset it, or start with lockstep supervise"));
  fcntl(number, F_SETFD, FD_CLOEXEC);
  return Descriptor(number);
}

Descriptor& agent_socket() {
  static Descriptor socket = take_socket();
  return socket;
}

std::string read_line(int number) {
  std::string line;
  for (char c = 0; line.size() < kMostPlaceBytes;) {
    const auto count = recv(number, &c, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    if (c == '\n') return line;
    line += c;
  }
  throw TransientError("the agent that started this process ended");
}

}  // namespace

Json json_list(const std::vector<std::string>& texts) {
  Json::Array all;
  for (const auto& text : texts)
    all.emplace_back(text);
  return all;
}

std::vector<std::string> texts_at(const Json& object, const char* key) {
  std::vector<std::string> all;
  for (const auto& one : object.at(key).as_array())
    all.push_back(one.as_string());
  return all;
}

Json to_json(const RestartSeconds& restart) {
  return Json::Object{{"judge", restart.judge}, {"prepare", restart.prepare}};
}

RestartSeconds restart_at(const Json& object, const char* key) {
  const Json& restart = object.at(key);
  return {.judge = restart.at("judge").as_double(), .prepare = restart.at("prepare").as_double()};
}

std::string AgentPlace::dump() const {
  return Json(Json::Object{{"rank", rank},
                           {"ranks", ranks},
                           {"local_rank", local_rank},
                           {"addresses", json_list(addresses)},
                           {"port", port},
                           {"secret", secret},
                           {"takes_over", takes_over},
                           {"restart", to_json(restart)},
                           {"noted_step", noted_step}})
      .dump();
}

AgentPlace AgentPlace::parse(const std::string& line) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const Json json = Json::parse(line, "the place of a rank");
  return {.rank = static_cast<int>(integer_at(json, "rank", 0, kMost)),
          .ranks = static_cast<int>(integer_at(json, "ranks", 1, kMost)),
          .local_rank = static_cast<int>(integer_at(json, "local_rank", 0, kMost)),
          .addresses = texts_at(json, "addresses"),
          .port = static_cast<std::uint16_t>(integer_at(json, "port", 0, 65535)),
          .secret = text_at(json, "secret"),
          .takes_over = json.at("takes_over").as_bool(),
          .restart = restart_at(json, "restart"),
          .noted_step = json.at("noted_step").as_integer()};
}

const std::optional<AgentPlace>& place_from_agent() {
  static const auto place = [] {
    std::optional<AgentPlace> found;
    if (agent_socket()) found = AgentPlace::parse(read_line(agent_socket().number()));
    return found;
  }();
  return place;
}

std::string RankReport::dump() const {
  return Json(Json::Object{{"error", error.substr(0, kMostErrorBytes)},
                           {"lost", json_list(lost)},
                           {"faulty", json_list(faulty)},
                           {"slow", json_list(slow)},
                           {"step", step},
                           {"samples", samples},
                           {"is_verdict", is_verdict},
                           {"is_common", is_common}})
      .dump();
}

RankReport RankReport::parse(const std::string& line) {
  const Json json = Json::parse(line, "the report of a rank");
  return {.error = text_at(json, "error"),
          .lost = texts_at(json, "lost"),
          .faulty = texts_at(json, "faulty"),
          .slow = texts_at(json, "slow"),
          .step = json.at("step").as_integer(),
          .samples = text_at(json, "samples"),
          .is_verdict = json.at("is_verdict").as_bool(),
          .is_common = json.at("is_common").as_bool()};
}

void report_to_agent(const RankReport& report) noexcept {
  static std::mutex mutex;
  try {
    const std::lock_guard lock(mutex);
    if (!agent_socket()) return;
    const auto line = report.dump() + "\n";
    // It does not wait: an agent that does not read must not hold up the end of a rank.
    [[maybe_unused]] const auto sent =
        send(agent_socket().number(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } catch (...) {  // the exit code remains
  }
}

}  // namespace lockstep
