#include "data/sources.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/mix.h"

namespace lockstep {
namespace {

// Gives sources of the same size different orders.
std::int64_t seed_of(std::uint64_t seed, const std::string& fingerprint) {
  std::uint64_t digits = 0;
  std::from_chars(fingerprint.data(), fingerprint.data() + 16, digits, 16);
  return static_cast<std::int64_t>(mix64(mix64(seed + kGolden64) + digits) >> 1);
}

// Number of shards of each source to keep open. With shuffle_shards each window may be from another
// of them, and two groups are read where they meet. Otherwise each source gets its share of all.
std::size_t most_open(const Sources::Config& config) {
  constexpr std::size_t kAll = 1024, kLeast = 4;
  const auto share = std::clamp(kAll / config.sources.size(), kLeast, Dataset::kMostOpen);
  return std::max(share, 2 * static_cast<std::size_t>(config.shuffle_shards));
}

// Returns the first dataset that does not define where documents end.
auto without_documents(const std::deque<Dataset>& datasets) {
  return std::ranges::find(datasets, Boundary::none,
                           [](const Dataset& dataset) { return dataset.format().boundary; });
}

RowKind settled(RowKind kind, const std::deque<Dataset>& datasets,
                const std::vector<std::string>& names) {
  if (kind == RowKind::automatic) return automatic_rows(datasets);
  const auto none = without_documents(datasets);
  if (kind != RowKind::windows && none != datasets.end())
    throw ConfigError(str("data.rows is ", lockstep::name(kind), ", but ",
                          names[static_cast<std::size_t>(none - datasets.begin())],
                          " does not define where documents end; expected windows"));
  return kind;
}

}  // namespace

RowKind automatic_rows(const std::deque<Dataset>& datasets) {
  const bool masks = std::ranges::any_of(datasets, &Dataset::has_masks);
  return masks && without_documents(datasets) == datasets.end() ? RowKind::packed
                                                                : RowKind::windows;
}

Sources::Sources(const Config& config)
    : length_(config.sequence_length),
      shuffle_shards_(config.shuffle_shards),
      shuffle_(config.shuffle) {
  LOCKSTEP_CHECK(config.sequence_length >= 1 && !config.sources.empty(), config.sources.size(),
                 " sources in rows of ", config.sequence_length, " tokens");
  if (config.sources.size() > kMostSources)
    throw ConfigError(str("data.source: ", config.sources.size(), " sources, expected at most ",
                          kMostSources, "; the path of a source may be a list of datasets"));
  for (const auto& source : config.sources) {
    names_.push_back(joined(source.paths));
    const auto& dataset = datasets_.emplace_back(source.paths, config.files, most_open(config));
    if (const auto ids = dataset.tokenizer_vocabulary();
        config.vocabulary != 0 && ids > config.vocabulary)
      throw ConfigError(str("model.vocabulary is ", config.vocabulary, ", but ", names_.back(),
                            " has token ids of a vocabulary of ", ids));
    for (std::size_t s = 0; s + 1 < datasets_.size(); ++s)
      if (const auto why = difference_of_tokenizers(datasets_[s], dataset); !why.empty())
        throw ConfigError(
            str(names_.back(), " and ", names_[s], " have different tokenizers: ", why));
  }
  row_kind_ = settled(config.rows, datasets_, names_);
  if (row_kind_ != RowKind::windows && config.shuffle_shards > 0)
    throw ConfigError(str("data.shuffle_shards is ", config.shuffle_shards, ", expected 0 for ",
                          lockstep::name(row_kind_), " rows, which are shuffled as a whole"));
  for (std::size_t s = 0; s < datasets_.size(); ++s) {
    try {
      rows_.emplace_back(datasets_[s], rows_config(length_));
    } catch (const DataError& error) {
      throw_like(error, str(names_[s], ": ", error.what()));
    }
  }
  go_on({fresh_start(config)});
}

Stretch Sources::fresh_start(const Config& config) const {
  std::vector<double> shares;
  for (std::size_t s = 0; s < count(); ++s) {
    const auto& source = config.sources[s];
    const bool alone = count() == 1;
    shares.push_back(alone               ? 1
                     : source.epochs > 0 ? source.epochs * static_cast<double>(rows_[s].count())
                                         : source.weight);
  }
  const auto weights = Mixture::weights_of(shares);
  Stretch stretch{.length = length_, .sources = {}};
  for (std::size_t s = 0; s < count(); ++s) {
    const auto& fingerprint = datasets_[s].fingerprint();
    for (std::size_t before = 0; before < s; ++before)
      if (datasets_[before].fingerprint() == fingerprint)
        throw ConfigError(str("data.source: ", names_[s], " holds the same tokens as ",
                              names_[before], "; keep one of them, with the weight of both"));
    stretch.sources.push_back({.name = names_[s],
                               .fingerprint = fingerprint,
                               .seed = count() == 1 ? static_cast<std::int64_t>(config.seed)
                                                    : seed_of(config.seed, fingerprint),
                               .weight = weights[s],
                               .counter = 0});
  }
  return stretch;
}

void Sources::go_on(DataHistory history) {
  LOCKSTEP_CHECK(!history.empty() && history.front().first_sample == 0,
                 "the data history does not start at sample 0");
  parts_.clear();
  for (const auto& stretch : history) {
    Part part{stretch.mixture(), {}};
    for (const auto& source : stretch.sources) {
      const auto at = std::ranges::find(datasets_, source.fingerprint, &Dataset::fingerprint);
      part.source.push_back(
          at == datasets_.end() ? kGone : static_cast<std::size_t>(at - datasets_.begin()));
    }
    parts_.push_back(std::move(part));
  }
  history_ = std::move(history);
}

BatchRows::Config Sources::rows_config(std::int64_t length) const {
  return {.kind = row_kind_, .sequence_length = length, .shuffle_shards = shuffle_shards_};
}

std::int64_t Sources::carried_over(const Stretch::Source& source, std::int64_t length) const {
  const auto at = std::ranges::find(datasets_, source.fingerprint, &Dataset::fingerprint);
  LOCKSTEP_CHECK(at != datasets_.end(), source.name, " is not open");
  const BatchRows before(*at, rows_config(length));
  const auto& now = rows_[static_cast<std::size_t>(at - datasets_.begin())];
  return lockstep::carried_over(source.counter, row_kind_, {before.count(), length},
                                {now.count(), length_});
}

std::size_t Sources::part_of(std::int64_t g) const {
  LOCKSTEP_CHECK(g >= 0, "sample ", g);
  const auto above = std::ranges::upper_bound(history_, g, {}, &Stretch::first_sample);
  return static_cast<std::size_t>(above - history_.begin()) - 1;
}

Sources::Place Sources::at(std::int64_t g) const {
  const auto p = part_of(g);
  const auto [of_part, index] = parts_[p].mixture.at(g - history_[p].first_sample);
  const auto& source = history_[p].sources[of_part];
  const auto here = parts_[p].source[of_part];
  if (here == kGone)
    throw DataError(str("sample ", g, " belongs to ", source.name, " (fingerprint ",
                        source.fingerprint, "), which the configuration no longer contains"));
  if (history_[p].length != length_)
    throw DataError(str("sample ", g, " is a row of ", history_[p].length, " tokens of ",
                        source.name, ", expected ", length_, " tokens"));
  const auto n = source.counter + index;
  const auto& rows = rows_[here];
  return {here, shuffle_ ? rows.at(static_cast<std::uint64_t>(source.seed), n)
                         : rows.in_order(n % rows.count())};
}

std::vector<std::int64_t> Sources::counters(std::int64_t g) const {
  const auto p = part_of(g);
  auto counts = parts_[p].mixture.counts(g - history_[p].first_sample);
  for (std::size_t s = 0; s < counts.size(); ++s)
    counts[s] += history_[p].sources[s].counter;
  return counts;
}

std::vector<Sources::Shard> Sources::shards_ahead(std::int64_t g, std::size_t most) const {
  const auto p = part_of(g);
  const auto next = counters(g);
  std::vector<std::vector<std::size_t>> of_sources;
  for (std::size_t s = 0; s < next.size(); ++s) {
    const auto here = parts_[p].source[s];
    const auto seed = static_cast<std::uint64_t>(history_[p].sources[s].seed);
    of_sources.push_back(here == kGone ? std::vector<std::size_t>{}
                                       : rows_[here].shards_ahead(seed, next[s], most));
  }
  std::vector<Shard> ahead;
  for (std::size_t turn = 0; turn < most; ++turn)
    for (std::size_t s = 0; s < next.size(); ++s)
      if (turn < of_sources[s].size()) ahead.push_back({parts_[p].source[s], of_sources[s][turn]});
  return ahead;
}

std::vector<Sources::Shard> Sources::shards_in_order(std::int64_t g, std::int64_t end,
                                                     std::size_t most) const {
  const auto& dataset = datasets_.front();
  std::vector<Shard> shards;
  const auto add = [&](std::int64_t first, std::int64_t behind) {
    if (first >= behind) return;
    const auto last = rows_.front().in_order(behind - 1);
    const auto last_shard = dataset.shard_of(last.first + last.tokens);
    auto s = dataset.shard_of(rows_.front().in_order(first).first);
    for (; s <= last_shard && shards.size() < most; ++s)
      if (std::find(shards.begin(), shards.end(), Shard{0, s}) == shards.end())
        shards.push_back({0, s});
  };
  add(g, end);
  add(0, std::min(g, end));
  return shards;
}

std::int64_t Sources::total_rows() const {
  std::int64_t sum = 0;
  for (const auto& rows : rows_)
    sum += rows.count();
  return sum;
}

std::int64_t Sources::total_tokens() const {
  std::int64_t sum = 0;
  for (const auto& dataset : datasets_)
    sum += dataset.tokens();
  return sum;
}

}  // namespace lockstep
