// The memory of a leader: decisions of earlier leaders, read from their records, and its own lines.
#include <algorithm>
#include <utility>

#include "dist/job/supervise/leader.h"

namespace lockstep {
namespace {

Attempt attempt_in(const Json& line) {
  return {.number = line.at("attempt").as_integer(), .places = texts_at(line, "hosts")};
}

}  // namespace

LeaderActions Leader::begin(const std::vector<Json>& records, double wall, Deadline now) {
  bool is_ours = true;
  std::int64_t term = 0;
  for (const auto& line : records)
    try {
      if (text_at(line, "event") == "preparing") known_ = attempt_in(line);
      // A leader that is deposed and does not know it may write lines.
      if (line.at("term").as_integer() < term) continue;
      term = line.at("term").as_integer();
      if (text_at(line, "event") == "leads") is_ours = text_at(line, "job") == options_.job;
      if (!is_ours) forget();
      const std::chrono::duration<double> age(std::max(wall - line.at("time").as_double(), 0.0));
      if (is_ours) remember(line, now - std::chrono::duration_cast<Clock::duration>(age));
    } catch (const DataError&) {  // a line of another version
    }
  evidence_ = {.attempt = attempt_, .slots = options_.slots, .noted_step = noted_step_};
  record("leads", {{"job", options_.job}});
  return std::exchange(actions_, {});
}

void Leader::forget() {
  policy_ = RestartPolicy(options_.policy);
  attempt_ = {};
  draining_.clear();
  asked_.clear();
  last_judged_ = noted_step_ = skip_step_ = 0;
}

void Leader::remember(const Json& line, Deadline then) {
  const auto& event = text_at(line, "event");
  if (event == "started" || event == "adopted") {
    attempt_ = attempt_in(line);
    draining_.clear();
  } else if (event == "moved") {
    move(text_at(line, "host"), text_at(line, "to"));
  } else if (event == "restarting") {
    draining_.clear();
    attempt_.number = 0;
    last_judged_ = line.at("attempt").as_integer();
  } else if (event == "judged") {
    const Cause cause{.kind = kind_of(text_at(line, "cause")),
                      .hosts = texts_at(line, "hosts"),
                      .exit_code = static_cast<int>(line.at("exit_code").as_integer()),
                      .signature = text_at(line, "signature"),
                      .step = line.at("step").as_integer()};
    evidence_.attempt = attempt_;
    evidence_.saved_step = line.at("saved_step").as_integer();
    evidence_.last_step = line.at("last_step").as_integer();
    evidence_.can_move = line.at("can_move").as_bool();
    evidence_.noted_step = noted_step_;
    follow(policy_.decide(cause, evidence_, then));
    draining_.clear();
    attempt_.number = 0;
    last_judged_ = line.at("attempt").as_integer();
  } else if ((event == "excluded" || event == "drained") && line.find("cause") == nullptr) {
    const auto& host = text_at(line, "host");
    policy_.exclude(host, event == "drained", then);
    const bool trains = std::ranges::find(attempt_.places, host) != attempt_.places.end();
    if (attempt_.number != 0 && trains) draining_ = host;
  } else if (event == "asked to stop" && line.at("exit_code").as_integer() == kInterrupted &&
             turned_ - then < 2 * options_.save) {  // an older one was of an earlier start
    asked_ = text_at(line, "why");                  // agents repeat other requests
    asked_code_ = kInterrupted;
  } else if (event == "readmitted") {
    policy_.readmit({text_at(line, "host")}, then);
  }
  actions_.clear();  // of move()
}

void Leader::record(const char* event, const std::vector<std::pair<std::string, Json>>& fields) {
  Json line = Json::Object{{"event", event}, {"term", options_.term}};
  for (const auto& [key, value] : fields)
    line.set(key, value);
  actions_.emplace_back(Record{std::move(line)});
}

}  // namespace lockstep
