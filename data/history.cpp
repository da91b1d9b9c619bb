#include "data/history.h"

#include <algorithm>
#include <iomanip>
#include <limits>

namespace lockstep {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 60;
constexpr std::int64_t kMostWeight = std::int64_t{1} << 54;

Stretch::Source source_in(const Json& json) {
  return {.name = text_at(json, "name"),
          .fingerprint = text_at(json, "fingerprint"),
          .seed = integer_at(json, "seed", 0, std::numeric_limits<std::int64_t>::max()),
          .weight = integer_at(json, "weight", 1, kMostWeight),
          .counter = integer_at(json, "counter", 0, kMostSamples)};
}

Stretch stretch_in(const Json& json) {
  Stretch stretch{.first_sample = integer_at(json, "first_sample", 0, kMostSamples), .sources = {}};
  const auto& sources = json.at("sources").as_array();
  if (sources.empty() || sources.size() > kMostSources)
    throw DataError(str("a stretch of the data has ", sources.size(), " sources, expected 1 to ",
                        kMostSources));
  for (const auto& source : sources)
    stretch.sources.push_back(source_in(source));
  return stretch;
}

// Each source that was ever read, with its counter at `sample`, the newest first.
std::vector<Stretch::Source> read_before(const DataHistory& history, std::int64_t sample) {
  std::vector<Stretch::Source> all;
  for (auto stretch = history.rbegin(); stretch != history.rend(); ++stretch) {
    const auto end = stretch == history.rbegin() ? sample : std::prev(stretch)->first_sample;
    const auto counts = stretch->mixture().counts(end - stretch->first_sample);
    for (std::size_t s = 0; s < counts.size(); ++s) {
      auto source = stretch->sources[s];
      source.counter += counts[s];
      const bool later = std::ranges::any_of(
          all, [&](const auto& other) { return other.fingerprint == source.fingerprint; });
      if (!later) all.push_back(source);
    }
  }
  return all;
}

const Stretch::Source* find(const std::vector<Stretch::Source>& sources,
                            std::string Stretch::Source::*member, const std::string& value) {
  const auto at = std::ranges::find(sources, value, member);
  return at == sources.end() ? nullptr : &*at;
}

std::string names(const std::vector<Stretch::Source>& sources) {
  std::string text;
  for (const auto& source : sources)
    text += (text.empty() ? "" : ", ") + source.name;
  return text;
}

// Whether both say the same of the samples to come.
bool same_mixture(const Stretch& a, const std::vector<Stretch::Source>& b) {
  return a.sources.size() == b.size() && std::ranges::all_of(b, [&](const auto& source) {
           const auto* other = find(a.sources, &Stretch::Source::fingerprint, source.fingerprint);
           return other != nullptr && other->weight == source.weight;
         });
}

}  // namespace

Mixture Stretch::mixture() const {
  std::vector<std::int64_t> weights;
  for (const auto& source : sources)
    weights.push_back(source.weight);
  return Mixture(weights);
}

Json to_json(const DataHistory& history) {
  Json all = Json::Array{};
  for (const auto& stretch : history) {
    Json sources = Json::Array{};
    for (const auto& source : stretch.sources) {
      Json json;
      json.set("name", source.name);
      json.set("fingerprint", source.fingerprint);
      json.set("seed", source.seed);
      json.set("weight", source.weight);
      json.set("counter", source.counter);
      sources.push(json);
    }
    Json json;
    json.set("first_sample", stretch.first_sample);
    json.set("sources", sources);
    all.push(json);
  }
  return all;
}

DataHistory history_in(const Json& data) {
  const Json* stretches = data.find("stretches");
  if (stretches == nullptr)
    return {
        {.first_sample = 0,
         .sources = {{.name = text_at(data, "dataset"),
                      .fingerprint = text_at(data, "fingerprint"),
                      .seed = integer_at(data, "seed", 0, std::numeric_limits<std::int64_t>::max()),
                      .weight = Mixture::weights_of(std::vector{1.0}).front(),
                      .counter = 0}}}};
  DataHistory history;
  for (const auto& json : stretches->as_array()) {
    history.push_back(stretch_in(json));
    const auto first = history.back().first_sample;
    if (history.size() == 1 ? first != 0 : first <= history[history.size() - 2].first_sample)
      throw DataError(str("stretch ", history.size(), " of the data begins at sample ", first,
                          ", expected ", history.size() == 1 ? "0" : "more than the one before"));
  }
  if (history.empty()) throw DataError("the data have no stretch");
  return history;
}

DataHistory continued(DataHistory history, std::int64_t sample, std::vector<Stretch::Source> now,
                      bool allow_dataset_change) {
  using Source = Stretch::Source;
  if (sample < history.back().first_sample)
    throw DataError(str("a run at sample ", sample, " has data from sample ",
                        history.back().first_sample, " on"));
  const auto before = read_before(history, sample);
  const bool one_each = now.size() == 1 && history.back().sources.size() == 1;
  for (auto& source : now) {
    const auto* same = find(before, &Source::fingerprint, source.fingerprint);
    if (same == nullptr) {
      same = one_each
                 ? find(before, &Source::fingerprint, history.back().sources.front().fingerprint)
                 : find(before, &Source::name, source.name);
      if (same != nullptr && !allow_dataset_change)
        throw ConfigError(str("the data in ", source.name,
                              " are not those that were read up to "
                              "sample ",
                              sample, " (fingerprint ", source.fingerprint, ", then ",
                              same->fingerprint, " of ", same->name,
                              "); put the dataset back, or "
                              "accept with --allow-dataset-change"));
    }
    if (same == nullptr) continue;
    source.seed = same->seed;
    source.counter = same->counter;
  }
  const auto is_read_on = [&](const Source& source) {
    return find(now, &Source::fingerprint, source.fingerprint) != nullptr;
  };
  if (!allow_dataset_change && std::ranges::none_of(history.back().sources, is_read_on))
    throw ConfigError(str("none of the data that were read up to sample ", sample,
                          " is among those to read now: then ", names(history.back().sources),
                          ", now ", names(now),
                          "; put one of them back, or accept with --allow-dataset-change"));
  if (same_mixture(history.back(), now)) return history;
  if (history.back().first_sample == sample) history.pop_back();
  history.push_back({.first_sample = sample, .sources = std::move(now)});
  return history;
}

bool agree_before(std::int64_t sample, const DataHistory& a, const DataHistory& b) {
  const auto end = [&](const DataHistory& history) {
    return std::ranges::lower_bound(history, sample, {}, &Stretch::first_sample);
  };
  return std::equal(a.begin(), end(a), b.begin(), end(b));
}

std::string in_words(const Stretch& stretch) {
  double sum = 0;
  for (const auto& source : stretch.sources)
    sum += static_cast<double>(source.weight);
  std::string text;
  for (const auto& source : stretch.sources)
    text += str(text.empty() ? "" : ", ", source.name, " ", std::fixed, std::setprecision(2),
                100 * static_cast<double>(source.weight) / sum, "%",
                source.counter > 0 ? str(" (from its sample ", source.counter, ")") : "");
  return text;
}

}  // namespace lockstep
