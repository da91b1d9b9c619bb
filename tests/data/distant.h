// A dataset of small shards in a directory that a BadServer serves.
#pragma once

#include "tests/data/bad_server.h"
#include "tests/data/shards.h"

namespace lockstep::testing {

// Shard i is "i.bin", of 100 + i tokens that are all i, in one document.
inline Manifest write_numbered_shards(const std::filesystem::path& directory, int shards) {
  Manifest manifest;
  manifest.format = {"bytes", kShardHeaderBytes, 2, 257, Boundary::listed, -1};
  manifest.tokenizer_hash = ByteTokenizer().about().hash;
  for (int i = 0; i < shards; ++i) {
    const auto name = str(i, ".bin");
    const auto text = gpt2_shard(Tokens(static_cast<std::size_t>(100 + i), i));
    std::string ends;
    append(ends, static_cast<std::uint64_t>(100 + i), 8);
    spit(directory / name, text);
    spit(directory / ends_name(name), ends);
    manifest.shards.push_back({name, 100 + i, 1, hash_hex(text), hash_hex(ends), ""});
  }
  spit(directory / kManifestName, manifest.dump());
  return manifest;
}

}  // namespace lockstep::testing
