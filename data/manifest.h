// Manifest is a dataset.json, which makes a directory of shards a dataset. It describes the tokens,
// the separation of documents, and the XXH3-128 of every file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "data/input_defects.h"
#include "data/token_file.h"

namespace lockstep {

class Json;

inline constexpr const char* kManifestName = "dataset.json";

struct Manifest {
  struct Shard {
    std::string file;  // a file name in the directory of the manifest, ending in .bin
    std::int64_t tokens = 0;
    std::int64_t documents = 0;  // documents that end in it: the length of its list of ends
    std::string hash;            // XXH3-128 of the file
    std::string ends_hash;       // XXH3-128 of the list of ends, NAME.ends for NAME.bin
    std::string mask_hash;       // XXH3-128 of the loss mask, NAME.mask; in all shards or in none
  };

  TokenFormat format;          // its name is the tokenizer's
  std::string tokenizer_hash;  // XXH3-128 of the tokenizer's definition; "" if unknown
  std::vector<Shard> shards;
  MissingBytes missing_bytes = MissingBytes::refuse;  // the setting with which the text was packed

  // Throws DataError "WHAT: ..." unless `text` is a manifest that this version supports.
  static Manifest parse(std::string_view text, const std::string& what);

  // Passes the shards to `visit` instead of storing them, because there may be millions.
  static Manifest parse(std::string_view text, const std::string& what,
                        FunctionRef<void(Shard&& shard)> visit);

  // Writes one line per shard. parse() reads this form many times faster than other JSON.
  std::string dump() const;

  std::int64_t tokens() const;
  std::int64_t documents() const;
};

// Reads an entry of "shards" from any JSON layout. Throws DataError naming the invalid member.
Manifest::Shard read_shard(const Json& json);

std::string ends_name(const std::string& shard);  // "a.bin" -> "a.ends"
std::string mask_name(const std::string& shard);  // "a.bin" -> "a.mask"

}  // namespace lockstep
