#include "data/history.h"

#include <algorithm>
#include <iomanip>
#include <limits>

namespace lockstep {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 60;
constexpr std::int64_t kMostWeight = std::int64_t{1} << 54;
constexpr std::int64_t kMostLength = std::int64_t{1} << 31;

__extension__ using Wide = __int128;

Stretch::Source source_in(const Json& json) {
  return {.name = text_at(json, "name"),
          .fingerprint = text_at(json, "fingerprint"),
          .seed = integer_at(json, "seed", 0, std::numeric_limits<std::int64_t>::max()),
          .weight = integer_at(json, "weight", 1, kMostWeight),
          .counter = integer_at(json, "counter", 0, kMostSamples)};
}

std::int64_t length_in(const Json& data) {
  return integer_at(data, "sequence_length", 1, kMostLength);
}

Stretch stretch_in(const Json& json, const Json& data) {
  Stretch stretch{.first_sample = integer_at(json, "first_sample", 0, kMostSamples),
                  .length = json.find("length") != nullptr
                                ? integer_at(json, "length", 1, kMostLength)
                                : length_in(data),
                  .sources = {}};
  const auto& sources = json.at("sources").as_array();
  if (sources.empty() || sources.size() > kMostSources)
    throw DataError(str("a stretch of the data history has ", sources.size(),
                        " sources, expected 1 to ", kMostSources));
  for (const auto& source : sources)
    stretch.sources.push_back(source_in(source));
  return stretch;
}

// A source with its counter, and the length of the rows that it counts.
struct Read {
  Stretch::Source source;
  std::int64_t length = 0;
};

// Returns each source that was ever read, with its counter at `sample`, newest first.
std::vector<Read> read_before(const DataHistory& history, std::int64_t sample) {
  std::vector<Read> all;
  for (auto stretch = history.rbegin(); stretch != history.rend(); ++stretch) {
    const auto end = stretch == history.rbegin() ? sample : std::prev(stretch)->first_sample;
    const auto counts = stretch->mixture().counts(end - stretch->first_sample);
    for (std::size_t s = 0; s < counts.size(); ++s) {
      auto source = stretch->sources[s];
      source.counter += counts[s];
      const bool later = std::ranges::any_of(
          all, [&](const auto& other) { return other.source.fingerprint == source.fingerprint; });
      if (!later) all.push_back({source, stretch->length});
    }
  }
  return all;
}

const Stretch::Source* find(const std::vector<Stretch::Source>& sources,
                            const std::string& fingerprint) {
  const auto at = std::ranges::find(sources, fingerprint, &Stretch::Source::fingerprint);
  return at == sources.end() ? nullptr : &*at;
}

const Read* find(const std::vector<Read>& all, std::string Stretch::Source::*member,
                 const std::string& value) {
  const auto at =
      std::ranges::find(all, value, [&](const Read& read) { return read.source.*member; });
  return at == all.end() ? nullptr : &*at;
}

std::string names(const std::vector<Stretch::Source>& sources) {
  std::string text;
  for (const auto& source : sources)
    text += (text.empty() ? "" : ", ") + source.name;
  return text;
}

// Whether both stretches give the same later samples.
bool same_mixture(const Stretch& a, const Stretch& b) {
  return a.length == b.length && a.sources.size() == b.sources.size() &&
         std::ranges::all_of(b.sources, [&](const auto& source) {
           const auto* other = find(a.sources, source.fingerprint);
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
    json.set("length", stretch.length);
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
         .length = length_in(data),
         .sources = {{.name = text_at(data, "dataset"),
                      .fingerprint = text_at(data, "fingerprint"),
                      .seed = integer_at(data, "seed", 0, std::numeric_limits<std::int64_t>::max()),
                      .weight = Mixture::weights_of(std::vector{1.0}).front(),
                      .counter = 0}}}};
  DataHistory history;
  for (const auto& json : stretches->as_array()) {
    history.push_back(stretch_in(json, data));
    const auto first = history.back().first_sample;
    if (history.size() == 1 ? first != 0 : first <= history[history.size() - 2].first_sample)
      throw DataError(
          str("stretch ", history.size(), " of the data history starts at sample ", first,
              history.size() == 1 ? ", expected 0"
                                  : ", expected a later sample than the previous stretch"));
  }
  if (history.empty()) throw DataError("the data history has no stretch");
  return history;
}

std::int64_t carried_over(std::int64_t counter, RowKind kind, const EpochRows& before,
                          const EpochRows& now) {
  if (kind == RowKind::examples) return counter;
  const auto epoch = counter / before.count, rows = counter % before.count;
  Wide of_epoch = now.count;
  if (rows == 0)
    of_epoch = 0;
  else if (kind == RowKind::windows)
    of_epoch = std::min(of_epoch, (Wide{rows} * before.length + now.length - 1) / now.length);
  const Wide carried = Wide{epoch} * now.count + of_epoch;
  if (carried > kMostSamples)
    throw DataError(str(epoch, " epochs of ", now.count, " rows exceed the largest sample number"));
  return static_cast<std::int64_t>(carried);
}

DataHistory continued(DataHistory history, std::int64_t sample, Stretch now, CarryOver carry,
                      bool allow_dataset_change) {
  using Source = Stretch::Source;
  const Stretch& last = history.back();
  if (sample < last.first_sample)
    throw DataError(str("the run is at sample ", sample,
                        ", but its data history has a stretch from sample ", last.first_sample));
  const auto before = read_before(history, sample);
  const bool one_each = now.sources.size() == 1 && last.sources.size() == 1;
  for (auto& source : now.sources) {
    const auto* same = find(before, &Source::fingerprint, source.fingerprint);
    if (same == nullptr) {
      same = one_each ? find(before, &Source::fingerprint, last.sources.front().fingerprint)
                      : find(before, &Source::name, source.name);
      if (same != nullptr && !allow_dataset_change)
        throw ConfigError(str("the dataset ", source.name,
                              " differs from the one that was read before sample ", sample,
                              " (fingerprint ", source.fingerprint, " now, ",
                              same->source.fingerprint, " of ", same->source.name,
                              " then); restore the dataset, or pass --allow-dataset-change"));
    }
    if (same == nullptr) continue;
    source.seed = same->source.seed;
    source.counter = same->source.counter;
    if (same->length != now.length) source.counter = carry(source, same->length);
  }
  const auto is_read_on = [&](const Source& source) {
    return find(now.sources, source.fingerprint) != nullptr;
  };
  if (!allow_dataset_change && std::ranges::none_of(last.sources, is_read_on))
    throw ConfigError(
        str("the configuration has none of the datasets that were read before sample ", sample,
            ": then ", names(last.sources), ", now ", names(now.sources),
            "; add one of them again, or pass --allow-dataset-change"));
  if (same_mixture(last, now)) return history;
  if (last.first_sample == sample) history.pop_back();
  now.first_sample = sample;
  history.push_back(std::move(now));
  return history;
}

DataHistory skipped(DataHistory history, std::int64_t begin, std::int64_t end) {
  auto stretch = history.back();
  if (begin < stretch.first_sample)
    throw ConfigError(str("--skip-steps: samples ", begin, " to ", end - 1, " begin before sample ",
                          stretch.first_sample,
                          ", up to which data were skipped or changed; choose later steps"));
  const auto counts = stretch.mixture().counts(end - stretch.first_sample);
  for (std::size_t s = 0; s < counts.size(); ++s)
    stretch.sources[s].counter += counts[s];
  if (begin == stretch.first_sample) history.pop_back();
  stretch.first_sample = begin;
  history.push_back(std::move(stretch));
  return history;
}

DataHistory history_before(std::int64_t sample, DataHistory history) {
  while (history.size() > 1 && history.back().first_sample >= sample)
    history.pop_back();
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
