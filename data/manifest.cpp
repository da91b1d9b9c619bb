#include "data/manifest.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostShardTokens = std::numeric_limits<std::int32_t>::max();

template <class... Args>
[[noreturn]] void refuse(const Args&... args) {
  throw DataError(str(args...));
}

Manifest::Shard read_shard(const Json& json) {
  Manifest::Shard shard;
  shard.file = text_at(json, "file");
  // A plain name: a manifest must not reach outside its directory.
  if (!shard.file.ends_with(".bin") || shard.file.find('/') != std::string::npos ||
      shard.file.find('\0') != std::string::npos)
    refuse("shard file \"", shard.file, "\", expected a plain name that ends in .bin");
  shard.tokens = integer_at(json, "tokens", 1, kMostShardTokens);
  shard.documents = integer_at(json, "documents", 0, shard.tokens);
  shard.hash = hash_at(json, "xxh3_128");
  shard.ends_hash = hash_at(json, "ends_xxh3_128");
  if (json.find("mask_xxh3_128") != nullptr) shard.mask_hash = hash_at(json, "mask_xxh3_128");
  return shard;
}

Boundary boundary_of(const std::string& word) {
  for (const auto boundary : {Boundary::front, Boundary::behind, Boundary::listed})
    if (word == name(boundary)) return boundary;
  refuse("boundary \"", word, "\", expected front, behind or listed");
}

TokenFormat read_format(const Json& json) {
  TokenFormat format;
  format.header_bytes = kShardHeaderBytes;
  format.name = text_at(json, "tokenizer");
  const auto& dtype = text_at(json, "dtype");
  if (dtype != "u16" && dtype != "u32") refuse("dtype \"", dtype, "\", expected u16 or u32");
  format.token_bytes = dtype == "u16" ? 2 : 4;
  format.vocabulary = integer_at(json, "vocabulary", 1, dtype == "u16" ? 65536 : kMostShardTokens);
  format.boundary = boundary_of(text_at(json, "boundary"));
  format.boundary_token =
      format.boundary == Boundary::listed
          ? -1
          : static_cast<std::int32_t>(integer_at(json, "boundary_token", 0, format.vocabulary - 1));
  return format;
}

template <class Member>
std::int64_t sum(const std::vector<Manifest::Shard>& shards, Member member) {
  std::int64_t total = 0;
  for (const auto& shard : shards)
    total += shard.*member;
  return total;
}

Manifest read_manifest(const Json& json) {
  integer_at(json, "lockstep_dataset", kVersion, kVersion);
  Manifest manifest;
  manifest.format = read_format(json);
  manifest.tokenizer_hash = hash_at(json, "tokenizer_xxh3_128");
  std::set<std::string> names;
  for (const auto& shard : json.at("shards").as_array()) {
    manifest.shards.push_back(read_shard(shard));
    if (!names.insert(manifest.shards.back().file).second)
      refuse("shard \"", manifest.shards.back().file, "\" is there twice");
  }
  if (manifest.shards.empty()) refuse("no shards");
  for (const auto& shard : manifest.shards)
    if (shard.mask_hash.empty() != manifest.shards.front().mask_hash.empty())
      refuse("shard \"", shard.file, "\": some shards have a mask_xxh3_128, others have none");
  // The counts at the top must be the sums of the shards'.
  integer_at(json, "tokens", manifest.tokens(), manifest.tokens());
  integer_at(json, "documents", manifest.documents(), manifest.documents());
  return manifest;
}

}  // namespace

std::int64_t Manifest::tokens() const {
  return sum(shards, &Shard::tokens);
}
std::int64_t Manifest::documents() const {
  return sum(shards, &Shard::documents);
}

Manifest Manifest::parse(std::string_view text, const std::string& what) {
  const Json json = Json::parse(text, what, 4);
  return in_context([&] { return read_manifest(json); }, what);
}

std::string Manifest::dump() const {
  Json json;
  json.set("lockstep_dataset", kVersion);
  json.set("tokenizer", format.name);
  json.set("tokenizer_xxh3_128", tokenizer_hash);
  json.set("vocabulary", format.vocabulary);
  json.set("dtype", format.token_bytes == 2 ? "u16" : "u32");
  json.set("boundary", name(format.boundary));
  if (format.boundary != Boundary::listed) json.set("boundary_token", format.boundary_token);
  json.set("tokens", tokens());
  json.set("documents", documents());
  Json list{Json::Array{}};
  for (const auto& shard : shards) {
    Json entry;
    entry.set("file", shard.file);
    entry.set("tokens", shard.tokens);
    entry.set("documents", shard.documents);
    entry.set("xxh3_128", shard.hash);
    entry.set("ends_xxh3_128", shard.ends_hash);
    if (!shard.mask_hash.empty()) entry.set("mask_xxh3_128", shard.mask_hash);
    list.push(std::move(entry));
  }
  json.set("shards", std::move(list));
  return json.dump(2) + "\n";
}

std::string ends_name(const std::string& shard) {
  return shard.substr(0, shard.size() - 4) + ".ends";
}
std::string mask_name(const std::string& shard) {
  return shard.substr(0, shard.size() - 4) + ".mask";
}

}  // namespace lockstep
