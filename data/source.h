// What a person says of the data of a run: where they are, in which shares, and what a row is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// A part of a mixture: all are given by weight, or all by epochs. One source alone needs neither.
struct DataSource {
  std::vector<std::string> paths;  // that Dataset opens, one behind the other
  double weight = 0;               // its share, over the sum of all
  double epochs = 0;               // its weight, in its own rows

  friend bool operator==(const DataSource&, const DataSource&) = default;
};

// What one row of a batch holds.
enum class RowKind : unsigned char {
  automatic,  // packed where a dataset has loss masks and all have documents, else windows
  windows,    // the next T tokens, wherever documents begin and end
  examples,   // one document
  packed,     // whole documents, one behind the other, while they fit
};
const char* name(RowKind kind);

std::string joined(const std::vector<std::string>& paths);  // "a, b"

// Whether a path is an address: s3://, https:// or http://.
bool is_remote(std::string_view path);

}  // namespace lockstep
