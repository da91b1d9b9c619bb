// pack: text becomes datasets of byte tokens, in one pass, in memory that does not depend on how
// much text there is. The datasets appear under their names when they are complete, or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/manifest.h"

namespace lockstep {

struct PackOptions {
  std::vector<std::filesystem::path> inputs;  // see text_files
  std::filesystem::path out;                  // must not exist, or be an empty directory
  std::string document_separator;             // stands between documents; empty: one a file
  double validation_share = 0;                // of documents, in [0, 1)
  std::int64_t shard_tokens = std::int64_t{1} << 28;
};

struct PackedDataset {
  std::filesystem::path path;
  Manifest manifest;
};

// Each document becomes ByteTokenizer::kDocumentToken and its bytes; one without bytes is left out,
// as is the separator. With a validation share, `out`/train and `out`/validation are the datasets,
// else `out` is. Throws DataError for input that cannot be read or split, UsageError for options
// that cannot be followed.
std::vector<PackedDataset> pack(const PackOptions& options);

// Whether document i is held out: of each stretch of 1 / share documents one, drawn by a hash, so
// that the share is exact to within one document and follows no period of the text.
bool is_validation(std::int64_t document, double share);

}  // namespace lockstep
