// Any record of how far pack got is refused, or says only what can be and reads back from what is
// written of it.
#include "data/pack_record.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr ShardLayout kPlain{.shard_tokens = 100}, kMasked{.shard_tokens = 64, .masked = true};

PackRecord example(const ShardLayout& layout, std::size_t datasets) {
  PackRecord record;
  record.position = {1, 77, 3, !layout.masked};
  record.documents = 12;
  record.split = static_cast<std::int64_t>(datasets) - 1;
  if (datasets > 1) record.replaced = {2, "a.txt: byte 5"};
  record.splits.resize(datasets);
  for (auto& state : record.splits) {
    state.tokens = 7;
    state.documents = 2;
    state.mask_byte = layout.masked ? 0x55 : 0;
    state.shards = {{"train_000000.bin", layout.shard_tokens, 3, std::string(32, '0'),
                     std::string(32, '1'), layout.masked ? std::string(32, '2') : ""}};
  }
  return record;
}

// What is taken as of such files and datasets is written and gone on from.
void check(const PackRecord& record, const ShardLayout& layout) {
  constexpr std::size_t kFiles = 2;
  record.check(kFiles, record.splits.size(), layout);
  LOCKSTEP_CHECK(0 <= record.position.file && record.position.file <= std::int64_t{kFiles}, "file ",
                 record.position.file);
  LOCKSTEP_CHECK(0 <= record.split && record.split < std::ssize(record.splits), "split ",
                 record.split);
  for (const auto& state : record.splits) {
    LOCKSTEP_CHECK(0 <= state.documents && state.documents <= state.tokens &&
                       state.tokens < layout.shard_tokens,
                   "an open shard of ", state.tokens, " tokens");
    LOCKSTEP_CHECK(state.mask_byte >> state.tokens % 8 == 0, "mask ", state.mask_byte);
    for (const auto& shard : state.shards) {
      LOCKSTEP_CHECK(std::filesystem::path(shard.file).filename() == shard.file, shard.file);
      LOCKSTEP_CHECK(shard.tokens == layout.shard_tokens && shard.documents <= shard.tokens &&
                         shard.mask_hash.empty() != layout.masked,
                     shard.file);
    }
  }
}

void check(std::string_view text) {
  const auto record = PackRecord::parse(text, "input");
  const auto written = record.dump();
  try {
    LOCKSTEP_CHECK(PackRecord::parse(written, "written").dump() == written, "another record");
  } catch (const DataError& error) {
    LOCKSTEP_FAIL(error.what());
  }
  for (const auto& layout : {kPlain, kMasked}) {
    try {
      check(record, layout);
    } catch (const DataError&) {
    }
  }
}

}  // namespace

std::vector<std::string> seeds() {
  return {example(kPlain, 1).dump(), example(kMasked, 1).dump(), example(kPlain, 2).dump()};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return lockstep::fuzz::check_text(lockstep::fuzz::check, data, size);
}
