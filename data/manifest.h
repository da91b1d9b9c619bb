// Manifest: dataset.json, which makes a directory of shards a dataset: what the tokens are, how
// documents are told apart, and the XXH3-128 of every file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "data/odd_input.h"
#include "data/token_file.h"

namespace lockstep {

class Json;

inline constexpr const char* kManifestName = "dataset.json";

struct Manifest {
  struct Shard {
    std::string file;  // a plain name, in the manifest's directory, ending in .bin
    std::int64_t tokens = 0;
    std::int64_t documents = 0;  // that end in it: the length of the list of ends
    std::string hash;            // XXH3-128 of the whole file
    std::string ends_hash;       // of the list, NAME.ends for NAME.bin
    std::string mask_hash;       // of the loss mask, NAME.mask; all shards have one, or none
  };

  TokenFormat format;          // name: the tokenizer's
  std::string tokenizer_hash;  // XXH3-128 of what defines the tokenizer; "": it is not known
  std::vector<Shard> shards;
  MissingBytes missing_bytes = MissingBytes::refuse;  // as the text was packed

  // Throws DataError "WHAT: ..." for what is not a manifest of a dataset that this version reads.
  static Manifest parse(std::string_view text, const std::string& what);

  // Hands the shards to `visit` instead of keeping them: there may be millions.
  static Manifest parse(std::string_view text, const std::string& what,
                        FunctionRef<void(Shard&& shard)> visit);

  // A line a shard, which parse() reads many times faster than other JSON.
  std::string dump() const;

  std::int64_t tokens() const;
  std::int64_t documents() const;
};

// One of "shards", as any JSON writes it. Throws DataError naming what cannot be.
Manifest::Shard read_shard(const Json& json);

std::string ends_name(const std::string& shard);  // "a.bin" -> "a.ends"
std::string mask_name(const std::string& shard);  // "a.bin" -> "a.mask"

}  // namespace lockstep
