// DataHistory records the data of a run as stretches of samples, each with one mixture. It makes
// the order of the data a function of the sample number alone, whatever changed during the run. A
// checkpoint stores it, and every run that resumes from it reads the same data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "core/json.h"
#include "data/mixture.h"
#include "data/source.h"

namespace lockstep {

// A stretch covers the samples from `first_sample` to the next stretch. Sample g has the source
// that the mixture of the weights gives for g - first_sample. Sample i of source s is sample
// counter + i of its order.
struct Stretch {
  struct Source {
    std::string name;         // its paths, joined
    std::string fingerprint;  // fingerprint of its dataset, which identifies it
    std::int64_t seed = 0;    // seed of its order
    std::int64_t weight = 1;  // its share is weight / sum of weights
    std::int64_t counter = 0;

    friend bool operator==(const Source&, const Source&) = default;
  };
  std::int64_t first_sample = 0;
  std::int64_t length = 0;  // length of a row, in tokens
  std::vector<Source> sources;

  Mixture mixture() const;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};
inline constexpr std::size_t kMostSources = 256;  // keeps the sum of weights below 2^62
using DataHistory = std::vector<Stretch>;         // in order; the first starts at sample 0

Json to_json(const DataHistory& history);

// Reads the "data" of a checkpoint, also of older formats with one dataset or one length. Throws
// DataError naming the missing member.
DataHistory history_in(const Json& data);

// Number and length of the rows of one epoch of a source.
struct EpochRows {
  std::int64_t count = 0, length = 0;
};
// Converts a counter of rows of the old length into a counter of rows of the new length:
// - windows: in the same epoch. If c old rows of T tokens were read, ceil(c T / T') new rows cover
//   their tokens, at most all rows of the epoch.
// - examples: the same rows.
// - packed: rows differ completely, so the next epoch begins.
std::int64_t carried_over(std::int64_t counter, RowKind kind, const EpochRows& before,
                          const EpochRows& now);

// Extends `history` by a stretch `now` from `sample` on. `now` has the seeds and weights of a fresh
// start. A source that was read before continues at its counter, with its own seed. If the row
// length changed, `carry` converts its counter of rows of `length`, see carried_over. Throws
// ConfigError, unless allow_dataset_change, in two cases:
// - A source with the same paths, or the only source, has another fingerprint than before. If
//   allowed, its order continues over the new data.
// - None of the sources that were read last is in `now`.
using CarryOver = FunctionRef<std::int64_t(const Stretch::Source& source, std::int64_t length)>;
DataHistory continued(DataHistory history, std::int64_t sample, Stretch now, CarryOver carry,
                      bool allow_dataset_change);

// Extends `history` by a stretch from `begin` on that reads what `end` and later samples would have
// read. The samples from `begin` to `end` are never read. Throws ConfigError if `begin` is before
// the last stretch.
DataHistory skipped(DataHistory history, std::int64_t begin, std::int64_t end);

// The history of the samples before `sample`; a stretch that begins there or later is left out.
DataHistory history_before(std::int64_t sample, DataHistory history);

// Whether both histories agree on all samples before `sample`.
bool agree_before(std::int64_t sample, const DataHistory& a, const DataHistory& b);

// "a 70.0% (from its sample 12), b 30.0%"
std::string in_words(const Stretch& stretch);

}  // namespace lockstep
