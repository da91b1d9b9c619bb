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

Manifest::Shard shard_of(const Json& json) {
  Manifest::Shard shard;
  shard.file = text_at(json, "file");
  shard.tokens = integer_at(json, "tokens", 1, kMost);
  shard.documents = integer_at(json, "documents", 0, kMost);
  shard.hash = hash_at(json, "xxh3_128");
  shard.ends_hash = hash_at(json, "ends_xxh3_128");
  if (json.find("mask_xxh3_128") != nullptr) shard.mask_hash = hash_at(json, "mask_xxh3_128");
  return shard;
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
  state.mask_byte = static_cast<int>(integer_at(json, "mask_byte", 0, 255));
  for (const auto& shard : json.at("shards").as_array())
    state.shards.push_back(shard_of(shard));
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

}  // namespace

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
