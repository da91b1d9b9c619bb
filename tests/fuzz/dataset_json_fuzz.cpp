// Any dataset.json is rejected, or has only possible values and survives a round trip.
#include "data/manifest.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::dataset_json_fuzz {
Manifest example(Boundary boundary, int shards) {
  Manifest manifest;
  manifest.format = {"bytes", kShardHeaderBytes, 2,
                     257,     boundary,          boundary == Boundary::front ? 256 : -1};
  manifest.tokenizer_hash = std::string(32, 'a');
  for (int i = 0; i < shards; ++i)
    manifest.shards.push_back({str("train_00000", i, ".bin"), 100, 3, std::string(32, '0'),
                               std::string(32, '1'),
                               boundary == Boundary::listed ? std::string(32, '2') : ""});
  return manifest;
}

void check(std::string_view input) {
  const auto manifest = Manifest::parse(input, "input");
  LOCKSTEP_CHECK(!manifest.shards.empty() && manifest.tokens() > 0, "an empty dataset");
  const auto& format = manifest.format;
  LOCKSTEP_CHECK(format.boundary == Boundary::listed || format.boundary == Boundary::none ||
                     (0 <= format.boundary_token && format.boundary_token < format.vocabulary),
                 "boundary token ", format.boundary_token);
  for (const auto& shard : manifest.shards) {
    LOCKSTEP_CHECK(shard.tokens > 0 && shard.documents <= shard.tokens, shard.file);
    LOCKSTEP_CHECK(std::filesystem::path(shard.file).filename() == shard.file, shard.file);
  }
  check_reads_back(manifest.dump(),
                   [](const std::string& text) { return Manifest::parse(text, "written").dump(); });
}

Seeds seeds() {
  // The last one has another form than dump() writes.
  return {example(Boundary::front, 1).dump(), example(Boundary::listed, 3).dump(),
          example(Boundary::none, 2).dump() + " "};
}

const Target target("dataset_json", seeds, check);

}  // namespace lockstep::fuzz::dataset_json_fuzz
