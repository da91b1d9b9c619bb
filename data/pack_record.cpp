#include "data/pack_record.h"

#include <limits>
#include <utility>

#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Json json_of(const Manifest::Shard& shard) {
  Json json;
  json.set("file", shard.file);
  json.set("tokens", shard.tokens);
  json.set("documents", shard.documents);
  json.set("xxh3_128", shard.hash);
  json.set("ends_xxh3_128", shard.ends_hash);
  if (!shard.mask_hash.empty()) json.set("mask_xxh3_128", shard.mask_hash);
  return json;
}

Json json_of(const ShardWriter::State& state) {
  Json json, shards{Json::Array{}};
  json.set("tokens", state.tokens);
  json.set("documents", state.documents);
  json.set("mask_byte", state.mask_byte);
  for (const auto& shard : state.shards)
    shards.push(json_of(shard));
  json.set("shards", std::move(shards));
  return json;
}

ShardWriter::State state_of(const Json& json) {
  ShardWriter::State state;
  state.tokens = integer_at(json, "tokens", 0, kMost);
  state.documents = integer_at(json, "documents", 0, state.tokens);
  const auto unused_bits = 8 - state.tokens % 8;
  state.mask_byte = static_cast<int>(integer_at(json, "mask_byte", 0, 255 >> unused_bits));
  for (const auto& shard : json.at("shards").as_array())
    state.shards.push_back(read_shard(shard));
  return state;
}

PackRecord record_of(const Json& json) {
  integer_at(json, "lockstep_pack", kVersion, kVersion);
  PackRecord record;
  record.position = {integer_at(json, "file", 0, kMost), integer_at(json, "byte", 0, kMost),
                     integer_at(json, "line", 1, kMost), json.at("inside").as_bool()};
  record.documents = integer_at(json, "documents", 0, kMost);
  for (const auto& split : json.at("splits").as_array())
    record.splits.push_back(state_of(split));
  record.split = integer_at(json, "split", 0, static_cast<std::int64_t>(record.splits.size()) - 1);
  record.replaced = {integer_at(json, "replaced", 0, kMost), text_at(json, "first_replaced")};
  return record;
}

void check_state(const ShardWriter::State& state, const ShardLayout& layout) {
  if (state.tokens >= layout.shard_tokens)
    throw DataError(str("a shard that is not full has ", state.tokens, " tokens, expected below ",
                        layout.shard_tokens));
  if (!layout.masked && state.mask_byte != 0)
    throw DataError(str("mask_byte is ", state.mask_byte, " where there are no loss masks"));
  for (const auto& shard : state.shards) {
    if (shard.tokens != layout.shard_tokens)
      throw DataError(str("shard ", shard.file, " has ", shard.tokens, " tokens, expected ",
                          layout.shard_tokens));
    if (shard.mask_hash.empty() == layout.masked)
      throw DataError(str("shard ", shard.file, " has ", layout.masked ? "no" : "a", " loss mask"));
  }
}

}  // namespace

void PackRecord::check(std::size_t files, std::size_t datasets, const ShardLayout& layout) const {
  const auto file = static_cast<std::size_t>(position.file);
  if (file > files) throw DataError(str("file is ", file, ", and there are ", files));
  if (file == files && (position.byte != 0 || position.inside))
    throw DataError("it goes on within a file behind the last");
  if (splits.size() != datasets)
    throw DataError(str("it is of ", splits.size(), " datasets, expected ", datasets));
  for (const auto& state : splits)
    check_state(state, layout);
}

std::string PackRecord::dump() const {
  Json json, list{Json::Array{}};
  json.set("lockstep_pack", kVersion);
  json.set("file", position.file);
  json.set("byte", position.byte);
  json.set("line", position.line);
  json.set("inside", position.inside);
  json.set("documents", documents);
  json.set("split", split);
  json.set("replaced", replaced.count);
  json.set("first_replaced", replaced.first);
  for (const auto& state : splits)
    list.push(json_of(state));
  json.set("splits", std::move(list));
  return json.dump(2) + "\n";
}

PackRecord PackRecord::parse(std::string_view text, const std::string& what) {
  const Json json = Json::parse(text, what, 5);
  return in_context([&] { return record_of(json); }, what);
}

}  // namespace lockstep
