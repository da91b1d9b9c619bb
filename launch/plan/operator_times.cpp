#include "launch/plan/operator_times.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/median.h"

namespace lockstep {
namespace {

constexpr std::array kTypes{DType::fp32,  DType::bf16,     DType::int32,
                            DType::uint8, DType::fp8_e4m3, DType::fp8_e5m2};

// Limits that keep sums and ratios finite.
constexpr double kMostSeconds = 1e9, kMostFlops = 1e30;

// The amount of work that the time of a call is proportional to.
template <class Call>
double work_of(const Call& call) {
  return call.flops > 0 ? call.flops : static_cast<double>(call.bytes);
}

template <class Call>
auto key_of(const Call& call) {
  return std::tuple(std::string_view(call.name), call.dtype, work_of(call), call.bytes, call.sizes);
}

DType dtype_of_name(const std::string& text) {
  for (const DType dtype : kTypes)
    if (text == name(dtype)) return dtype;
  throw DataError(str("unknown type \"", text, "\""));
}

}  // namespace

OperatorTimes::OperatorTimes(const std::vector<const OpLog*>& logs) {
  using Key = decltype(key_of(std::declval<const Op&>()));
  std::map<Key, std::vector<double>> found;
  for (const OpLog* log : logs)
    for (const auto& entry : log->entries()) {
      if (entry.what != OpLog::What::op || entry.op.kind == Op::Kind::collective ||
          entry.op.kind == Op::Kind::transfer)
        continue;
      found[key_of(entry.op)].push_back(entry.seconds);
    }
  for (const auto& [key, seconds] : found) {
    const auto& [operator_name, dtype, work, bytes, sizes] = key;
    times_.push_back({.name = std::string(operator_name),
                      .dtype = dtype,
                      .sizes = sizes,
                      .flops = sizes[0] > 0 ? work : 0,
                      .bytes = bytes,
                      .calls = std::ssize(seconds),
                      .seconds = median(seconds)});
  }
  sort();
}

void OperatorTimes::sort() {
  std::ranges::sort(times_, {}, [](const Time& time) { return key_of(time); });
}

std::optional<double> OperatorTimes::seconds(const Op& op) const {
  const auto is_same = [&](const Time& time) {
    return time.name == op.name && time.dtype == op.dtype;
  };
  const auto begin = std::find_if(times_.begin(), times_.end(), is_same);
  const auto end = std::find_if_not(begin, times_.end(), is_same);
  if (begin == end) return std::nullopt;
  const auto exact =
      std::find_if(begin, end, [&](const Time& time) { return key_of(time) == key_of(op); });
  if (exact != end) return exact->seconds;
  const double work = work_of(op);
  const auto above =
      std::find_if(begin, end, [&](const Time& time) { return work_of(time) >= work; });
  if (above == end || above == begin) {
    const Time& nearest = above == end ? *(end - 1) : *begin;
    return nearest.seconds * work / std::max(work_of(nearest), 1.0);
  }
  const Time &low = *(above - 1), &high = *above;
  if (!(work_of(low) > 0 && low.seconds > 0 && high.seconds > 0)) return high.seconds;
  const double whole = std::log(work_of(high) / work_of(low));
  const double share = whole > 0 ? std::log(work / work_of(low)) / whole : 0.0;
  return low.seconds * std::pow(high.seconds / low.seconds, share);
}

namespace {

OperatorTimes::Time parse_time(const Json& json) {
  OperatorTimes::Time time{.name = text_at(json, "operator"),
                           .dtype = dtype_of_name(text_at(json, "type"))};
  time.bytes = integer_at(json, "bytes", 0, INT64_MAX);
  time.calls = integer_at(json, "calls", 1, INT64_MAX);
  time.seconds = json.at("seconds").as_double();
  if (!(time.seconds >= 0 && time.seconds < kMostSeconds))
    throw DataError(
        str(time.name, ": seconds: expected 0 to ", kMostSeconds, ", found ", time.seconds));
  constexpr std::array<std::string_view, 7> kKeys{"operator", "type",  "bytes", "calls",
                                                  "seconds",  "sizes", "flops"};
  for (const auto& [key, value] : json.as_object())
    if (std::ranges::find(kKeys, key) == kKeys.end())
      throw DataError(str(time.name, ": unknown key ", key));
  const Json* sizes = json.find("sizes");
  if (sizes == nullptr) return time;
  if (sizes->as_array().size() != time.sizes.size())
    throw DataError(str(time.name, ": sizes: expected 4 values, found ", sizes->as_array().size()));
  for (std::size_t i = 0; i < time.sizes.size(); ++i)
    if ((time.sizes[i] = sizes->as_array()[i].as_integer()) < 0)
      throw DataError(str(time.name, ": sizes: expected no negative values"));
  time.flops = json.at("flops").as_double();
  if (!(time.flops >= 0 && time.flops < kMostFlops))
    throw DataError(str(time.name, ": flops: expected 0 to ", kMostFlops, ", found ", time.flops));
  return time;
}

}  // namespace

OperatorTimes OperatorTimes::parse(const Json& json) {
  OperatorTimes parsed;
  for (const Json& one : json.as_array())
    in_context([&] { parsed.times_.push_back(parse_time(one)); }, "[", parsed.times_.size(), "]");
  parsed.sort();
  return parsed;
}

Json OperatorTimes::to_json() const {
  Json::Array all;
  for (const Time& time : times_) {
    Json one = Json::Object{{"operator", time.name},
                            {"type", lockstep::name(time.dtype)},
                            {"bytes", time.bytes},
                            {"calls", time.calls},
                            {"seconds", time.seconds}};
    if (time.sizes[0] > 0) {
      Json::Array sizes;
      for (const auto size : time.sizes)
        sizes.emplace_back(size);
      one.set("sizes", sizes);
      one.set("flops", time.flops);
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace lockstep
