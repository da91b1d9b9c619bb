#include "data/manifest.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostShardTokens = std::numeric_limits<std::int32_t>::max();

class Reader {
 public:
  explicit Reader(const std::string& what) : what_(what) {}

  template <class... Args>
  [[noreturn]] void fail(const Args&... args) const {
    throw DataError(str(what_, ": ", args...));
  }

  std::int64_t integer(const Json& object, const char* key, std::int64_t least,
                       std::int64_t most) const {
    const Json& json = object.at(key);
    if (!json.is_integer()) fail('"', key, "\" is ", json.dump(), ", expected an integer");
    const auto value = json.as_integer();
    if (value < least || value > most)
      fail('"', key, "\" is ", value, ", expected ", least,
           least == most ? std::string() : str(" to ", most));
    return value;
  }

  const std::string& text(const Json& object, const char* key) const {
    const Json& json = object.at(key);
    if (!json.is_string()) fail('"', key, "\" is ", json.dump(), ", expected a string");
    return json.as_string();
  }

  const std::string& hash(const Json& object, const char* key) const {
    const auto& digits = text(object, key);
    if (digits.size() != 32 || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
      fail('"', key, "\" is \"", digits, "\", expected 32 hexadecimal digits");
    return digits;
  }

  Manifest::Shard shard(const Json& json) const {
    Manifest::Shard shard;
    shard.file = text(json, "file");
    // A plain name: a manifest must not reach outside its directory.
    if (!shard.file.ends_with(".bin") || shard.file.find('/') != std::string::npos ||
        shard.file.find('\0') != std::string::npos)
      fail("shard file \"", shard.file, "\", expected a plain name that ends in .bin");
    shard.tokens = integer(json, "tokens", 1, kMostShardTokens);
    shard.documents = integer(json, "documents", 0, shard.tokens);
    shard.hash = hash(json, "xxh3_128");
    shard.ends_hash = hash(json, "ends_xxh3_128");
    return shard;
  }

  TokenFormat format(const Json& json) const {
    TokenFormat format;
    format.header_bytes = kShardHeaderBytes;
    format.name = text(json, "tokenizer");
    const auto& dtype = text(json, "dtype");
    if (dtype != "u16" && dtype != "u32") fail("dtype \"", dtype, "\", expected u16 or u32");
    format.token_bytes = dtype == "u16" ? 2 : 4;
    format.vocabulary = integer(json, "vocabulary", 1, dtype == "u16" ? 65536 : kMostShardTokens);
    format.boundary = boundary(text(json, "boundary"));
    format.boundary_token =
        format.boundary == Boundary::listed
            ? -1
            : static_cast<std::int32_t>(integer(json, "boundary_token", 0, format.vocabulary - 1));
    return format;
  }

 private:
  Boundary boundary(const std::string& word) const {
    for (const auto boundary : {Boundary::front, Boundary::behind, Boundary::listed})
      if (word == name(boundary)) return boundary;
    fail("boundary \"", word, "\", expected front, behind or listed");
  }

  const std::string& what_;
};

template <class Member>
std::int64_t sum(const std::vector<Manifest::Shard>& shards, Member member) {
  std::int64_t total = 0;
  for (const auto& shard : shards)
    total += shard.*member;
  return total;
}

Manifest read_manifest(const Json& json, const std::string& what) {
  const Reader reader(what);
  reader.integer(json, "lockstep_dataset", kVersion, kVersion);
  Manifest manifest;
  manifest.format = reader.format(json);
  manifest.tokenizer_hash = reader.hash(json, "tokenizer_xxh3_128");
  std::set<std::string> names;
  for (const auto& shard : json.at("shards").as_array()) {
    manifest.shards.push_back(reader.shard(shard));
    if (!names.insert(manifest.shards.back().file).second)
      reader.fail("shard \"", manifest.shards.back().file, "\" is there twice");
  }
  if (manifest.shards.empty()) reader.fail("no shards");
  // The counts at the top must be the sums of the shards'.
  reader.integer(json, "tokens", manifest.tokens(), manifest.tokens());
  reader.integer(json, "documents", manifest.documents(), manifest.documents());
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
  try {
    return read_manifest(json, what);
  } catch (const DataError& error) {
    const std::string message = error.what();
    throw DataError(message.starts_with(what) ? message : str(what, ": ", message));
  }
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
    list.push(std::move(entry));
  }
  json.set("shards", std::move(list));
  return json.dump(2) + "\n";
}

std::string ends_name(const std::string& shard) {
  return shard.substr(0, shard.size() - 4) + ".ends";
}

}  // namespace lockstep
