// Configuration of the data of a run: paths, shares, and the kind of rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// DataSource is a part of a mixture. Either all sources have a weight, or all have epochs. A single
// source needs neither.
struct DataSource {
  std::vector<std::string> paths;  // paths that Dataset opens, in order
  double weight = 0;               // its share is weight / sum of weights
  double epochs = 0;               // its weight, in epochs of its own rows

  friend bool operator==(const DataSource&, const DataSource&) = default;
};

// Content of one row of a batch.
enum class RowKind : unsigned char {
  automatic,  // packed if a dataset has loss masks and all have documents, else windows
  windows,    // the next T tokens, regardless of documents
  examples,   // one document
  packed,     // as many whole documents as fit
};
const char* name(RowKind kind);

std::string joined(const std::vector<std::string>& paths);  // "a, b"

// Whether a path is an address: s3://, https://, http:// or file:.
bool is_remote(std::string_view path);

}  // namespace lockstep
