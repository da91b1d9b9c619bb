#include "dist/job/supervise/messages.h"

#include <limits>

namespace lockstep {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr int kMostHosts = 1 << 20;
constexpr const char* kWhat = "a message of the supervision";

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // clang needs it

Json number_list(const std::vector<int>& numbers) {
  Json::Array all;
  for (const int number : numbers)
    all.emplace_back(number);
  return all;
}
std::vector<int> numbers_at(const Json& object, const char* key) {
  std::vector<int> all;
  for (const auto& one : object.at(key).as_array()) {
    const auto number = one.as_integer();
    if (number < 0 || number > kMost) throw DataError(str(key, ": ", number, " is out of range"));
    all.push_back(static_cast<int>(number));
  }
  return all;
}
int int_at(const Json& object, const char* key, std::int64_t least = 0) {
  return static_cast<int>(integer_at(object, key, least, kMost));
}
std::uint16_t port_at(const Json& object) {
  return static_cast<std::uint16_t>(integer_at(object, "port", 0, 65535));
}
std::int64_t number_at(const Json& object, const char* key) {
  return integer_at(object, key, 0, std::numeric_limits<std::int64_t>::max());
}

Json to_json(const RankEnd& end) {
  return Json::Object{{"rank", end.rank},
                      {"exit_code", end.exit_code},
                      {"unwatched", end.unwatched},
                      {"out_of_memory", end.out_of_memory},
                      {"error", end.error},
                      {"lost", json_list(end.lost)},
                      {"faulty", json_list(end.faulty)},
                      {"step", end.step},
                      {"samples", end.samples},
                      {"is_verdict", end.is_verdict},
                      {"is_common", end.is_common}};
}
RankEnd rank_end(const Json& json) {
  return {.rank = int_at(json, "rank"),
          .exit_code = int_at(json, "exit_code"),
          .unwatched = json.at("unwatched").as_bool(),
          .out_of_memory = json.at("out_of_memory").as_bool(),
          .error = text_at(json, "error"),
          .lost = texts_at(json, "lost"),
          .faulty = texts_at(json, "faulty"),
          .step = number_at(json, "step"),
          .samples = text_at(json, "samples"),
          .is_verdict = json.at("is_verdict").as_bool(),
          .is_common = json.at("is_common").as_bool()};
}

Json parsed(const std::string& text) {
  return Json::parse(text, kWhat);
}

}  // namespace

Json to_json(const HostPlace& place) {
  return Json::Object{{"attempt", place.attempt}, {"number", place.number}, {"hosts", place.hosts}};
}

HostPlace host_place(const Json& json) {
  const HostPlace place{.attempt = number_at(json, "attempt"),
                        .number = int_at(json, "number"),
                        .hosts = int_at(json, "hosts", 1)};
  if (place.number >= place.hosts || place.hosts > kMostHosts)
    throw DataError(str(kWhat, ": place ", place.number, " of ", place.hosts, " does not exist"));
  return place;
}

std::string encode(const FromAgent& message) {
  const Json json = std::visit(
      Overloaded{[](const Join& join) {
                   return Json(Json::Object{{"kind", "join"},
                                            {"id", join.id},
                                            {"host", join.host},
                                            {"job", join.job},
                                            {"slots", join.slots},
                                            {"running", to_json(join.running)}});
                 },
                 [](const AgentBeat&) {
                   return Json(Json::Object{{"kind", "beat"}});
                 },
                 [](const Ready& ready) {
                   return Json(Json::Object{{"kind", "ready"},
                                            {"attempt", ready.attempt},
                                            {"fault", ready.fault},
                                            {"addresses", json_list(ready.addresses)},
                                            {"port", ready.port}});
                 },
                 [](const Ended& ended) {
                   Json::Array ranks;
                   for (const auto& rank : ended.ranks)
                     ranks.push_back(to_json(rank));
                   return Json(Json::Object{{"kind", "ended"},
                                            {"attempt", ended.attempt},
                                            {"ranks", std::move(ranks)},
                                            {"xids", number_list(ended.xids)},
                                            {"all", ended.all}});
                 },
                 [](const Slow& slow) {
                   return Json(Json::Object{{"kind", "slow"}, {"hosts", json_list(slow.hosts)}});
                 },
                 [](const AskStop& ask) {
                   return Json(Json::Object{
                       {"kind", "ask_stop"}, {"why", ask.why}, {"leaves", ask.leaves}});
                 }},
      message);
  return json.dump();
}

FromAgent decode_from_agent(const std::string& text) {
  const Json json = parsed(text);
  const auto& kind = text_at(json, "kind");
  if (kind == "beat") return AgentBeat();
  if (kind == "join")
    return Join{.id = text_at(json, "id"),
                .host = text_at(json, "host"),
                .job = text_at(json, "job"),
                .slots = int_at(json, "slots", 1),
                .running = host_place(json.at("running"))};
  if (kind == "ready")
    return Ready{.attempt = number_at(json, "attempt"),
                 .fault = text_at(json, "fault"),
                 .addresses = texts_at(json, "addresses"),
                 .port = port_at(json)};
  if (kind == "slow") return Slow{.hosts = texts_at(json, "hosts")};
  if (kind == "ask_stop")
    return AskStop{.why = text_at(json, "why"), .leaves = json.at("leaves").as_bool()};
  if (kind == "ended") {
    Ended ended{.attempt = number_at(json, "attempt"),
                .xids = numbers_at(json, "xids"),
                .all = json.at("all").as_bool()};
    for (const auto& rank : json.at("ranks").as_array())
      ended.ranks.push_back(rank_end(rank));
    return ended;
  }
  throw DataError(str(kWhat, ": unknown kind ", kind));
}

std::string encode(const FromLeader& message) {
  const Json json = std::visit(
      Overloaded{[](const Welcome& welcome) {
                   return Json(Json::Object{
                       {"kind", "welcome"}, {"term", welcome.term}, {"judged", welcome.judged}});
                 },
                 [](const Prepare& prepare) {
                   return Json(Json::Object{{"kind", "prepare"},
                                            {"attempt", prepare.attempt},
                                            {"check", prepare.check},
                                            {"leads", prepare.leads}});
                 },
                 [](const Start& start) {
                   return Json(Json::Object{{"kind", "start"},
                                            {"place", to_json(start.place)},
                                            {"takes_over", start.takes_over},
                                            {"addresses", json_list(start.addresses)},
                                            {"port", start.port},
                                            {"restart", to_json(start.restart)},
                                            {"noted_step", start.noted_step},
                                            {"skip_step", start.skip_step}});
                 },
                 [](const Stop& stop) {
                   return Json(Json::Object{
                       {"kind", "stop"}, {"attempt", stop.attempt}, {"save", stop.save}});
                 },
                 [](const Over& over) {
                   return Json(Json::Object{{"kind", "over"},
                                            {"exit_code", over.exit_code},
                                            {"why", over.why},
                                            {"keeps_ranks", over.keeps_ranks}});
                 }},
      message);
  return json.dump();
}

FromLeader decode_from_leader(const std::string& text) {
  const Json json = parsed(text);
  const auto& kind = text_at(json, "kind");
  if (kind == "welcome")
    return Welcome{.term = number_at(json, "term"), .judged = number_at(json, "judged")};
  if (kind == "prepare")
    return Prepare{.attempt = number_at(json, "attempt"),
                   .check = json.at("check").as_bool(),
                   .leads = json.at("leads").as_bool()};
  if (kind == "start")
    return Start{.place = host_place(json.at("place")),
                 .takes_over = json.at("takes_over").as_bool(),
                 .addresses = texts_at(json, "addresses"),
                 .port = port_at(json),
                 .restart = restart_at(json, "restart"),
                 .noted_step = number_at(json, "noted_step"),
                 .skip_step = number_at(json, "skip_step")};
  if (kind == "stop")
    return Stop{.attempt = number_at(json, "attempt"), .save = json.at("save").as_bool()};
  if (kind == "over")
    return Over{.exit_code = int_at(json, "exit_code"),
                .why = text_at(json, "why"),
                .keeps_ranks = json.at("keeps_ranks").as_bool()};
  throw DataError(str(kWhat, ": unknown kind ", kind));
}

std::string Term::dump() const {
  return Json(Json::Object{{"number", number},
                           {"id", id},
                           {"job", job},
                           {"host", host},
                           {"addresses", json_list(addresses)},
                           {"port", port}})
      .dump();
}

Term Term::parse(const std::string& text, const std::string& what) {
  const Json json = Json::parse(text, what);
  return {.number = number_at(json, "number"),
          .id = text_at(json, "id"),
          .job = text_at(json, "job"),
          .host = text_at(json, "host"),
          .addresses = texts_at(json, "addresses"),
          .port = port_at(json)};
}

}  // namespace lockstep
