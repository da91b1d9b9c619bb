#include "data/manifest.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/hash.h"
#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostShardTokens = std::numeric_limits<std::int32_t>::max();

// Placeholder for the hash of an unknown tokenizer.
std::string unknown_tokenizer_hash() {
  return hash_hex("unknown");
}

template <class... Args>
[[noreturn]] void refuse(const Args&... args) {
  throw DataError(str(args...));
}

// Whether it is a plain name; a manifest must not refer to files outside its directory.
bool is_plain_name(std::string_view name) {
  return name.ends_with(".bin") && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

std::string line_of(const Manifest::Shard& shard) {
  auto line = str("    {\"file\": ", Json(shard.file).dump(), ", \"tokens\": ", shard.tokens,
                  ", \"documents\": ", shard.documents, ", \"xxh3_128\": \"", shard.hash,
                  "\", \"ends_xxh3_128\": \"", shard.ends_hash, '"');
  if (!shard.mask_hash.empty()) line += str(", \"mask_xxh3_128\": \"", shard.mask_hash, '"');
  return line + '}';
}

// Reads lines in the form of line_of() only, not other JSON.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  std::string_view rest() const { return rest_; }

  bool take(std::string_view words) {
    if (!rest_.starts_with(words)) return false;
    rest_.remove_prefix(words.size());
    return true;
  }
  bool take_shard(Manifest::Shard& shard, std::string_view& name) {
    return take("    {\"file\": \"") && take_name(shard.file, name) && take(", \"tokens\": ") &&
           take_number(shard.tokens, 1, kMostShardTokens) && take(", \"documents\": ") &&
           take_number(shard.documents, 0, shard.tokens) && take(", \"xxh3_128\": \"") &&
           take_hash(shard.hash) && take(", \"ends_xxh3_128\": \"") && take_hash(shard.ends_hash) &&
           take_mask(shard.mask_hash) && take("}");
  }

 private:
  bool take_name(std::string& copy, std::string_view& name) {
    const auto end = rest_.find('"');
    if (end == std::string_view::npos) return false;
    name = rest_.substr(0, end);
    const bool plain = std::all_of(name.begin(), name.end(),
                                   [](char c) { return c >= ' ' && c < 0x7f && c != '\\'; });
    if (!plain || !is_plain_name(name)) return false;
    copy = name;
    rest_.remove_prefix(end + 1);
    return true;
  }
  bool take_number(std::int64_t& value, std::int64_t least, std::int64_t most) {
    const bool leading_zero = rest_.starts_with('0') && rest_.size() > 1 && rest_[1] != ',';
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (parsed.ec != std::errc() || leading_zero || value < least || value > most) return false;
    rest_.remove_prefix(static_cast<std::size_t>(parsed.ptr - rest_.data()));
    return true;
  }
  bool take_hash(std::string& hash) {
    constexpr std::size_t kDigits = 32;
    if (rest_.size() <= kDigits || rest_[kDigits] != '"') return false;
    const auto text = rest_.substr(0, kDigits);
    const bool digits = std::all_of(text.begin(), text.end(), [](char c) {
      return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f');
    });
    hash = text;
    rest_.remove_prefix(kDigits + 1);
    return digits;
  }
  bool take_mask(std::string& hash) {
    hash.clear();
    return rest_.starts_with('}') || (take(", \"mask_xxh3_128\": \"") && take_hash(hash));
  }

  std::string_view rest_;
};

constexpr std::string_view kShardsBegin = "\n  \"shards\": [\n", kShardsEnd = "\n  ]\n}\n";

// Passes each shard of a text in the form of dump(), and its name within the text, to `visit`.
// Returns false for another form.
bool read_lines(std::string_view text,
                FunctionRef<void(Manifest::Shard&&, std::string_view name)> visit) {
  Lines lines(text);
  Manifest::Shard shard;
  std::string_view name;
  do {
    if (!lines.take_shard(shard, name)) return false;
    visit(std::move(shard), name);
  } while (lines.take(",\n"));
  return lines.rest() == kShardsEnd;
}

// Census checks the shards one by one: their sums, and properties of all shards.
class Census {
 public:
  void add(const Manifest::Shard& shard, std::string_view name) {
    const bool masked = !shard.mask_hash.empty();
    if (!names_.empty() && masked != masked_)
      refuse("shard \"", shard.file, "\" has ", masked ? "a" : "no",
             " loss mask, unlike the shards before it");
    masked_ = masked;
    tokens_ += shard.tokens;
    documents_ += shard.documents;
    names_.push_back(name);
  }
  void check(const Json& json) {
    if (names_.empty()) refuse("the list of shards is empty");
    if (!std::is_sorted(names_.begin(), names_.end())) std::sort(names_.begin(), names_.end());
    const auto twice = std::adjacent_find(names_.begin(), names_.end());
    if (twice != names_.end()) refuse("shard \"", *twice, "\" is listed twice");
    // The counts at the top must be the sums over the shards.
    integer_at(json, "tokens", tokens_, tokens_);
    integer_at(json, "documents", documents_, documents_);
  }

 private:
  std::int64_t tokens_ = 0, documents_ = 0;
  std::vector<std::string_view> names_;
  bool masked_ = false;
};

Boundary boundary_of(const std::string& word) {
  for (const auto boundary : {Boundary::front, Boundary::behind, Boundary::listed, Boundary::none})
    if (word == name(boundary)) return boundary;
  refuse("boundary is \"", word, "\", expected front, behind, listed or none");
}

TokenFormat read_format(const Json& json) {
  TokenFormat format;
  format.header_bytes = kShardHeaderBytes;
  format.name = text_at(json, "tokenizer");
  const auto& dtype = text_at(json, "dtype");
  if (dtype != "u16" && dtype != "u32") refuse("dtype is \"", dtype, "\", expected u16 or u32");
  format.token_bytes = dtype == "u16" ? 2 : 4;
  format.vocabulary = integer_at(json, "vocabulary", 1, dtype == "u16" ? 65536 : kMostShardTokens);
  format.boundary = boundary_of(text_at(json, "boundary"));
  format.boundary_token =
      format.boundary == Boundary::listed || format.boundary == Boundary::none
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

MissingBytes missing_bytes_of(const std::string& text) {
  for (const auto missing : {MissingBytes::drop, MissingBytes::replace})
    if (text == name(missing)) return missing;
  refuse("missing_bytes is \"", text, "\", expected drop or replace");
}

Manifest read_head(const Json& json) {
  integer_at(json, "lockstep_dataset", kVersion, kVersion);
  Manifest manifest;
  manifest.format = read_format(json);
  manifest.tokenizer_hash = hash_at(json, "tokenizer_xxh3_128");
  if (manifest.tokenizer_hash == unknown_tokenizer_hash()) manifest.tokenizer_hash.clear();
  if (json.find("missing_bytes") != nullptr)
    manifest.missing_bytes = missing_bytes_of(text_at(json, "missing_bytes"));
  return manifest;
}

// Returns the part before the shards in a text in the form of dump(); "" for another form. Only the
// outermost object may be open there, so that the shards belong to it.
std::string_view head_of(std::string_view text) {
  const auto at = text.find(kShardsBegin);
  if (at == std::string_view::npos || !text.starts_with('{')) return {};
  const auto head = text.substr(0, at + kShardsBegin.size());
  return head.find('{', 1) == std::string_view::npos && head.find('[') == head.size() - 2
             ? head
             : std::string_view();
}

}  // namespace

std::int64_t Manifest::tokens() const {
  return sum(shards, &Shard::tokens);
}
std::int64_t Manifest::documents() const {
  return sum(shards, &Shard::documents);
}

Manifest::Shard read_shard(const Json& json) {
  Manifest::Shard shard;
  shard.file = text_at(json, "file");
  if (!is_plain_name(shard.file))
    refuse("shard file \"", shard.file,
           "\", expected a file name without directories that ends in .bin");
  shard.tokens = integer_at(json, "tokens", 1, kMostShardTokens);
  shard.documents = integer_at(json, "documents", 0, shard.tokens);
  shard.hash = hash_at(json, "xxh3_128");
  shard.ends_hash = hash_at(json, "ends_xxh3_128");
  if (json.find("mask_xxh3_128") != nullptr) shard.mask_hash = hash_at(json, "mask_xxh3_128");
  return shard;
}

Manifest Manifest::parse(std::string_view text, const std::string& what) {
  std::vector<Shard> shards;
  auto manifest = parse(text, what, [&](Shard&& shard) { shards.push_back(std::move(shard)); });
  manifest.shards = std::move(shards);
  return manifest;
}

Manifest Manifest::parse(std::string_view text, const std::string& what,
                         FunctionRef<void(Shard&& shard)> visit) {
  const auto head = head_of(text);
  const auto lines = text.substr(head.size());
  const bool fast = !head.empty() && read_lines(lines, [](const Shard&, std::string_view) {});
  const Json json = fast ? Json::parse(str(head, kShardsEnd), what, 4) : Json::parse(text, what, 4);
  return in_context(
      [&] {
        auto manifest = read_head(json);
        Census census;
        const auto take = [&](Shard&& shard, std::string_view name) {
          census.add(shard, name);
          visit(std::move(shard));
        };
        if (fast)
          read_lines(lines, take);
        else
          for (const auto& entry : json.at("shards").as_array())
            take(read_shard(entry), entry.at("file").as_string());
        census.check(json);
        return manifest;
      },
      what);
}

std::string Manifest::dump() const {
  Json json;
  json.set("lockstep_dataset", kVersion);
  json.set("tokenizer", format.name);
  json.set("tokenizer_xxh3_128",
           tokenizer_hash.empty() ? unknown_tokenizer_hash() : tokenizer_hash);
  if (missing_bytes != MissingBytes::refuse) json.set("missing_bytes", name(missing_bytes));
  json.set("vocabulary", format.vocabulary);
  json.set("dtype", format.token_bytes == 2 ? "u16" : "u32");
  json.set("boundary", name(format.boundary));
  if (format.boundary != Boundary::listed && format.boundary != Boundary::none)
    json.set("boundary_token", format.boundary_token);
  json.set("tokens", tokens());
  json.set("documents", documents());
  auto text = json.dump(2);
  text.resize(text.size() - 2);  // "\n}"
  text += ",";
  text += kShardsBegin;
  for (const auto& shard : shards) {
    if (&shard != shards.data()) text += ",\n";
    text += line_of(shard);
  }
  text += kShardsEnd;
  return text;
}

std::string ends_name(const std::string& shard) {
  return shard.substr(0, shard.size() - 4) + ".ends";
}
std::string mask_name(const std::string& shard) {
  return shard.substr(0, shard.size() - 4) + ".mask";
}

}  // namespace lockstep
