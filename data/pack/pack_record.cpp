#include "data/pack/pack_record.h"

#include <array>
#include <limits>
#include <utility>

#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kVersion = 4;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Json json_of(const ShardWriter::State& state) {
  Json json;
  json.set("shards", state.shards);
  json.set("tokens", state.tokens);
  json.set("documents", state.documents);
  json.set("mask_byte", state.mask_byte);
  return json;
}

ShardWriter::State state_of(const Json& json) {
  ShardWriter::State state;
  state.shards = integer_at(json, "shards", 0, kMost);
  state.tokens = integer_at(json, "tokens", 0, kMost);
  state.documents = integer_at(json, "documents", 0, state.tokens);
  const auto unused_bits = 8 - state.tokens % 8;
  state.mask_byte = static_cast<int>(integer_at(json, "mask_byte", 0, 255 >> unused_bits));
  return state;
}

InputPosition position_of(const Json& json) {
  InputPosition position{integer_at(json, "file", 0, kMost), integer_at(json, "byte", 0, kMost),
                         integer_at(json, "line", 1, kMost), json.at("inside").as_bool()};
  std::int64_t rest = position.byte;
  for (const auto& stretch : json.at("read").as_array()) {
    position.read.push_back({integer_at(stretch, "bytes", 1, rest), hash_at(stretch, "xxh3_128")});
    rest -= position.read.back().bytes;
  }
  if (rest != 0) throw DataError(str("\"read\" lacks ", rest, " of ", position.byte, " bytes"));
  return position;
}

// The tallies of `odd` by the names of their JSON members.
template <class Odd>
auto tallies_of(Odd& odd) {
  return std::array{std::pair{"replaced", &odd.text}, std::pair{"not_numbers", &odd.numbers},
                    std::pair{"missing_bytes", &odd.bytes}, std::pair{"returns", &odd.returns},
                    std::pair{"zeros", &odd.zeros}};
}

PackRecord record_of(const Json& json) {
  if (const auto version = integer_at(json, "lockstep_pack", 0, kMost); version != kVersion)
    throw DataError(
        str("its format has version ", version, ", expected ", kVersion,
            "; resume with the lockstep that wrote it, or remove the directory to start again"));
  PackRecord record;
  record.position = position_of(json);
  record.documents = integer_at(json, "documents", 0, kMost);
  for (const auto& split : json.at("splits").as_array())
    record.splits.push_back(state_of(split));
  record.split = integer_at(json, "split", 0, static_cast<std::int64_t>(record.splits.size()) - 1);
  for (const auto& [name, tally] : tallies_of(record.odd))
    *tally = {integer_at(json, name, 0, kMost), text_at(json, str("first_", name).c_str())};
  record.list_bytes = integer_at(json, "list_bytes", 0, kMost);
  record.list_hash = hash_at(json, "list_xxh3_128");
  record.shards.resize(record.splits.size());
  return record;
}

void check_state(const ShardWriter::State& state, const std::vector<Manifest::Shard>& shards,
                 const ShardLayout& layout) {
  if (state.tokens >= layout.shard_tokens)
    throw DataError(str("a shard that is not full has ", state.tokens, " tokens, expected below ",
                        layout.shard_tokens));
  if (!layout.masked && state.mask_byte != 0)
    throw DataError(str("mask_byte is ", state.mask_byte, ", but there are no loss masks"));
  if (state.shards != std::ssize(shards))
    throw DataError(
        str("the record has ", state.shards, " shards, but the list has ", shards.size()));
  for (const auto& shard : shards) {
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
  if (file > files) throw DataError(str("file is ", file, ", but there are ", files, " files"));
  if (file == files && (position.byte != 0 || position.inside))
    throw DataError("the position is inside a file after the last one");
  if (splits.size() != datasets)
    throw DataError(str("the record has ", splits.size(), " datasets, expected ", datasets));
  for (std::size_t i = 0; i < datasets; ++i)
    check_state(splits[i], shards[i], layout);
}

std::string PackedShard::line() const {
  Json json;
  json.set("split", split);
  json.set("file", shard.file);
  json.set("tokens", shard.tokens);
  json.set("documents", shard.documents);
  json.set("xxh3_128", shard.hash);
  json.set("ends_xxh3_128", shard.ends_hash);
  if (!shard.mask_hash.empty()) json.set("mask_xxh3_128", shard.mask_hash);
  return json.dump() + "\n";
}

PackedShard PackedShard::parse(std::string_view line, const std::string& what) {
  const Json json = Json::parse(line, what, 2);
  return in_context(
      [&] {
        return PackedShard{integer_at(json, "split", 0, 1), read_shard(json)};
      },
      what);
}

void PackRecord::add(PackedShard shard) {
  if (shard.split >= std::ssize(shards))
    throw DataError(str("split is ", shard.split, ", but there are ", shards.size(), " splits"));
  shards[static_cast<std::size_t>(shard.split)].push_back(std::move(shard.shard));
}

std::string PackRecord::dump() const {
  Json json, list{Json::Array{}}, read{Json::Array{}};
  json.set("lockstep_pack", kVersion);
  json.set("file", position.file);
  json.set("byte", position.byte);
  json.set("line", position.line);
  json.set("inside", position.inside);
  for (const auto& [bytes, hash] : position.read) {
    Json stretch;
    stretch.set("bytes", bytes);
    stretch.set("xxh3_128", hash);
    read.push(std::move(stretch));
  }
  json.set("read", std::move(read));
  json.set("documents", documents);
  json.set("split", split);
  for (const auto& [name, tally] : tallies_of(odd)) {
    json.set(name, tally->count);
    json.set(str("first_", name), tally->first);
  }
  for (const auto& state : splits)
    list.push(json_of(state));
  json.set("splits", std::move(list));
  json.set("list_bytes", list_bytes);
  json.set("list_xxh3_128", list_hash);
  return json.dump(2) + "\n";
}

PackRecord PackRecord::parse(std::string_view text, const std::string& what) {
  const Json json = Json::parse(text, what, 5);
  return in_context([&] { return record_of(json); }, what);
}

}  // namespace lockstep
