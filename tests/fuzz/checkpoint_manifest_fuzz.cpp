// Any manifest.json is rejected, or has exactly one place for each element and each byte.
#include "checkpoint/manifest.h"
#include "core/hash.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::checkpoint_manifest_fuzz {
CheckpointManifest example() {
  const std::string hash(32, 'a');
  CheckpointManifest m;
  m.step = 7;
  m.about = Json::parse(R"({"tokens":[1,2.5]})", "about");
  m.files = {{"a", 32, 8, hash}, {"b", 24, 8, hash}};
  m.tensors.push_back(
      {"w",
       {2, 5},
       DType::bf16,
       {1, 2, 3},
       {{{0, 0, 6}, 0, 20, hash}, {{1, 0, 1}, 1, 8, hash}, {{1, 1, 4}, 1, 10, hash}}});
  m.tensors.push_back({"v", {3}, DType::fp32, {0, 1, 3}, {{{0, 0, 3}, 0, 8, hash}}});
  m.tensors.push_back({"u", {8}, DType::uint8, {0, 1, 8}, {{{0, 0, 8}, 1, 16, hash}}});
  return m;
}

void check_places(const CheckpointManifest& m) {
  std::int64_t file_bytes = 0, slice_bytes = 0;
  for (const auto& file : m.files)
    file_bytes += file.bytes - file.header_bytes;
  for (const auto& tensor : m.tensors) {
    std::int64_t elements = 0;
    for (const auto& slice : tensor.slices) {
      const auto& file = m.files.at(static_cast<std::size_t>(slice.file));
      slice_bytes += tensor.slice_bytes(slice);
      elements += slice.piece.end - slice.piece.begin;
      LOCKSTEP_CHECK(slice.offset >= file.header_bytes &&
                         slice.offset + tensor.slice_bytes(slice) <= file.bytes,
                     "outside the file: ", tensor.name);
      std::int64_t visited = 0;
      Runs runs(tensor.shape, tensor.split, slice.piece);
      for (; !runs.done() && visited < 1000; runs.advance(runs.count())) {
        LOCKSTEP_CHECK(runs.begin() >= 0 && runs.count() > 0 &&
                           runs.begin() + runs.count() <= tensor.shape.elements(),
                       "outside the tensor: ", tensor.name);
        ++visited;
      }
    }
    LOCKSTEP_CHECK(elements == tensor.shape.elements(), "elements of ", tensor.name);
  }
  LOCKSTEP_CHECK(slice_bytes == file_bytes, slice_bytes, " bytes of slices, ", file_bytes);
}

// Checks the input unchanged, and with the right hash, which every mutation breaks.
void check(std::string_view input) {
  const std::string body(input.substr(0, input.rfind("\"xxh3_128\"")));
  for (const auto& text :
       {std::string(input), body + "\"xxh3_128\": \"" + hash_hex(body) + "\"\n}\n"})
    may_refuse([&] {
      const auto manifest = CheckpointManifest::parse(text, "input");
      must_accept([&] {
        check_places(manifest);
        CheckpointManifest::parse(manifest.dump(), "written");
      });
    });
}

Seeds seeds() {
  return {example().dump()};
}

const Target target("checkpoint_manifest", seeds, check);

}  // namespace lockstep::fuzz::checkpoint_manifest_fuzz
