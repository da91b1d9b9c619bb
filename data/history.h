// DataHistory: what a run read, and reads, as stretches of samples, each of one mixture. With it
// the order of the data is a function of the sample's number alone, whatever changed on the way: a
// checkpoint keeps it, and every run that goes on from there reads the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "core/json.h"
#include "data/mixture.h"
#include "data/source.h"

namespace lockstep {

// The samples from `first_sample` on, up to the next stretch: sample g is what the mixture of the
// weights says of g - first_sample; source s's sample i of it is sample counter + i of its order.
struct Stretch {
  struct Source {
    std::string name;         // its paths
    std::string fingerprint;  // of its dataset: what it is known by
    std::int64_t seed = 0;    // of its order
    std::int64_t weight = 1;  // its share, over the sum of all
    std::int64_t counter = 0;

    friend bool operator==(const Source&, const Source&) = default;
  };
  std::int64_t first_sample = 0;
  std::int64_t length = 0;  // of its rows, in tokens
  std::vector<Source> sources;

  Mixture mixture() const;
  friend bool operator==(const Stretch&, const Stretch&) = default;
};
inline constexpr std::size_t kMostSources = 256;  // so that the sum of weights stays below 2^62
using DataHistory = std::vector<Stretch>;         // in order; the first from sample 0 on

Json to_json(const DataHistory& history);

// Of a checkpoint's "data", those of before too, which have one dataset or one length. Throws
// DataError naming what it does not say.
DataHistory history_in(const Json& data);

// The rows that a source has an epoch, and their length.
struct EpochRows {
  std::int64_t count = 0, length = 0;
};
// A counter of rows of before as one of rows of now. Windows: in the same epoch, of whose c rows of
// T tokens that were read, ceil(c T / T') of now's cover the tokens, or all rows of the epoch if
// there are fewer. Examples: the same rows. Packed: no row is one of before; the next epoch begins.
std::int64_t carried_over(std::int64_t counter, RowKind kind, const EpochRows& before,
                          const EpochRows& now);

// The history of a run whose samples from `sample` on are of `now`, sources with seeds and weights
// of a fresh start. A source that was read before goes on where it was, with its own seed; where
// the length of rows was another, `carry` says where, see carried_over: of a source with its
// counter of rows of `length`. Throws ConfigError where a source of the same paths, or the only
// one, has another fingerprint than before, unless that is allowed: then the order goes on over
// what is there now. Likewise where none of the sources that were read last is among them.
using CarryOver = FunctionRef<std::int64_t(const Stretch::Source& source, std::int64_t length)>;
DataHistory continued(DataHistory history, std::int64_t sample, Stretch now, CarryOver carry,
                      bool allow_dataset_change);

// Whether both say the same of all samples before `sample`.
bool agree_before(std::int64_t sample, const DataHistory& a, const DataHistory& b);

// "a 70.0% (from its sample 12), b 30.0%"
std::string in_words(const Stretch& stretch);

}  // namespace lockstep
