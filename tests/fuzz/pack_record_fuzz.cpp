// Any progress record of pack, and any line of the list next to it, is rejected, or has only
// possible values and survives a round trip.
#include "data/pack/pack_record.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::pack_record_fuzz {
constexpr ShardLayout kPlain{.shard_tokens = 100}, kMasked{.shard_tokens = 64, .masked = true};

PackRecord example(const ShardLayout& layout, std::size_t datasets) {
  PackRecord record;
  record.position = {
      1, 77, 3, !layout.masked, {{70, std::string(32, '3')}, {7, std::string(32, '4')}}};
  record.documents = 12;
  record.split = static_cast<std::int64_t>(datasets) - 1;
  if (datasets > 1) record.odd.text = {2, "a.txt: byte 5"};
  record.splits.resize(datasets);
  for (auto& state : record.splits) {
    state.tokens = 7;
    state.documents = 2;
    state.mask_byte = layout.masked ? 0x55 : 0;
    state.shards = 1;
  }
  record.list_bytes = 200;
  record.list_hash = std::string(32, '5');
  return record;
}

PackedShard example_shard(const ShardLayout& layout) {
  return {1,
          {"train_000000.bin", layout.shard_tokens, 3, std::string(32, '0'), std::string(32, '1'),
           layout.masked ? std::string(32, '2') : ""}};
}

// A record that is accepted for these files and datasets can be written and resumed from.
void check_record(PackRecord record, const ShardLayout& layout) {
  constexpr std::size_t kFiles = 2;
  if (record.splits.size() > 2) return;
  for (std::size_t i = 0; i < record.splits.size(); ++i)
    for (std::int64_t n = 0; n < std::min<std::int64_t>(record.splits[i].shards, 2); ++n)
      record.add({static_cast<std::int64_t>(i), example_shard(layout).shard});
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
  }
  std::int64_t read = 0;
  for (const auto& stretch : record.position.read)
    read += stretch.bytes;
  LOCKSTEP_CHECK(read == record.position.byte, read, " bytes read");
}

void check_shard(std::string_view text) {
  const auto packed = PackedShard::parse(text, "input");
  const auto& shard = packed.shard;
  LOCKSTEP_CHECK(std::filesystem::path(shard.file).filename() == shard.file, shard.file);
  LOCKSTEP_CHECK(0 < shard.tokens && shard.documents <= shard.tokens, shard.file);
  check_reads_back(packed.line(), [](const std::string& line) {
    return PackedShard::parse(line, "written").line();
  });
}

void check(std::string_view text) {
  may_refuse([&] { check_shard(text); });
  const auto record = PackRecord::parse(text, "input");
  check_reads_back(record.dump(), [](const std::string& written) {
    return PackRecord::parse(written, "written").dump();
  });
  for (const auto& layout : {kPlain, kMasked})
    may_refuse([&] { check_record(record, layout); });
}

Seeds seeds() {
  return {example(kPlain, 1).dump(), example(kMasked, 1).dump(), example(kPlain, 2).dump(),
          example_shard(kPlain).line(), example_shard(kMasked).line()};
}

const Target target("pack_record", seeds, check);

}  // namespace lockstep::fuzz::pack_record_fuzz
