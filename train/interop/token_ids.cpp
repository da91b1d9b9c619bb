#include "train/interop/token_ids.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/log.h"
#include "data/input_defects.h"
#include "data/tokenizer/rank_file.h"
#include "data/tokenizer/tokenizer_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostIdsBytes = std::int64_t{1} << 30;
constexpr int kDepth = 64;
constexpr const char* kKeys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

Json parsed(const std::string& text, const std::string& what) {
  return Json::parse(with_quoted_not_numbers(text), what, kDepth);
}

// Reads an object. Returns an empty one if the file does not exist, or with a warning if it cannot
// be read.
Json object_in(const fs::path& file) {
  if (!path_exists(file)) return Json::Object{};
  try {
    auto json = parsed(read_text(file, kMostIdsBytes), file.string());
    return json.is_object() ? json : Json(Json::Object{});
  } catch (const DataError& error) {
    log_warning("ignoring the token ids of a file that cannot be read: ", error.what());
    return Json::Object{};
  }
}

// Definition of a tokenizer that is not a tokenizer.json. It has no tokens if there is none, or
// with a warning if the file cannot be read.
BpeDefinition definition_in(const fs::path& directory) {
  const auto file = tokenizer_in(directory);
  if (!file) return {};
  try {
    const auto text = read_text(*file, kMostIdsBytes);
    if (!is_rank_file(text) && !is_tekken(Json::parse(text, file->string(), kDepth))) return {};
    return parse_tokenizer(text, file->string());
  } catch (const DataError& error) {
    log_warning("ignoring the token ids of a file that cannot be read: ", error.what());
    return {};
  }
}

// NamedTokens finds ids by the names of tokens, in the files of a tokenizer's directory.
class NamedTokens {
 public:
  explicit NamedTokens(const fs::path& directory)
      : config_(object_in(directory / "tokenizer_config.json")),
        map_(object_in(directory / "special_tokens_map.json")),
        definition_(definition_in(directory)),
        directory_(directory) {}

  // Id of the token that `key` ("eos_token") names; null if there is none.
  Json id(const char* key) {
    auto name = name_in(config_, key);
    if (name.empty()) name = name_in(map_, key);
    if (name.empty() && key == std::string_view("bos_token")) name = definition_.begin_token;
    if (name.empty() && key == std::string_view("eos_token")) name = definition_.end_token;
    if (name.empty()) return {};
    if (const auto id = definition_.find(name); id >= 0) return std::int64_t{id};
    if (!read_) {
      tokenizer_ = object_in(directory_ / "tokenizer.json");
      vocabulary_ = object_in(directory_ / "vocab.json");
      read_ = true;
    }
    if (const Json* added = tokenizer_.find("added_tokens"); added != nullptr && added->is_array())
      for (const Json& token : added->as_array())
        if (name_in(token, "content") == name) return integer_in(token, "id");
    if (const Json* model = tokenizer_.find("model"); model != nullptr && model->is_object())
      if (const Json* vocabulary = model->find("vocab");
          vocabulary != nullptr && vocabulary->is_object())
        return integer_in(*vocabulary, name);
    return integer_in(vocabulary_, name);
  }

 private:
  // Name of a token: a string, or the content of an object.
  static std::string name_in(const Json& json, std::string_view key) {
    const Json* value = json.is_object() ? json.find(key) : nullptr;
    if (value != nullptr && value->is_object()) value = value->find("content");
    return value != nullptr && value->is_string() ? value->as_string() : "";
  }
  static Json integer_in(const Json& json, std::string_view key) {
    const Json* value = json.find(key);
    return value != nullptr && value->is_integer() ? *value : Json();
  }

  Json config_, map_;
  BpeDefinition definition_;
  Json tokenizer_, vocabulary_;
  fs::path directory_;
  bool read_ = false;
};

// Returns one id or a list of ids as a list.
std::vector<std::int64_t> ids_in(const Json& value) {
  std::vector<std::int64_t> ids;
  if (value.is_integer()) ids.push_back(value.as_integer());
  if (value.is_array())
    for (const Json& one : value.as_array())
      if (one.is_integer()) ids.push_back(one.as_integer());
  return ids;
}

std::vector<std::int64_t> ids_at(const Json& config, const char* key) {
  const Json* value = config.find(key);
  return value != nullptr ? ids_in(*value) : std::vector<std::int64_t>();
}

Json value_of(const std::vector<std::int64_t>& ids) {
  if (ids.empty()) return {};
  if (ids.size() == 1) return ids.front();
  Json list;
  for (const auto id : ids)
    list.push(id);
  return list;
}

// Removes ids that the model does not have. Some files write -1 for no id.
Json below(std::vector<std::int64_t> ids, const char* key, std::int64_t vocabulary,
           const fs::path& directory) {
  std::erase_if(ids, [&](std::int64_t id) {
    const bool lies_beyond = id < 0 || id >= vocabulary;
    if (lies_beyond && id != -1)
      log_warning(directory.string(), ": ", key, " is ", id, ", expected below the model's ",
                  "vocabulary of ", vocabulary, "; it is ignored");
    return lies_beyond;
  });
  return value_of(ids);
}

// Returns nullopt if the text is not a JSON object. Such a generation_config.json is copied
// unchanged.
std::optional<Json> generation_in(const std::string& config) {
  try {
    auto json = parsed(config, kGenerationConfig);
    if (json.is_object()) return json;
  } catch (const DataError&) {
  }
  return std::nullopt;
}

// Removes the quotes that with_quoted_not_numbers() added.
std::string with_bare_not_numbers(std::string text) {
  for (const std::string word : {"NaN", "Infinity", "-Infinity"}) {
    const auto quoted = str('"', word, '"');
    for (std::size_t at = 0; (at = text.find(quoted, at)) != std::string::npos; at += word.size())
      if (!text.substr(at + quoted.size(), 1).starts_with(':'))  // the name of a member
        text.replace(at, quoted.size(), word);
  }
  return text;
}

}  // namespace

void TokenIds::set(Json& config) const {
  config.set("bos_token_id", bos);
  config.set("eos_token_id", eos);
  config.set("pad_token_id", pad);
}

TokenIds token_ids(const fs::path& directory, std::int64_t vocabulary) {
  const Json generation = object_in(directory / kGenerationConfig);
  const Json config = object_in(directory / "config.json");
  NamedTokens named(directory);
  const auto id = [&](const char* key, const char* name) {
    auto said = ids_at(generation, key);
    if (said.empty()) said = ids_at(config, key);
    if (said.empty()) said = ids_in(named.id(name));
    return below(said, key, vocabulary, directory);
  };
  TokenIds ids{id("bos_token_id", "bos_token"), id("eos_token_id", "eos_token"),
               id("pad_token_id", "pad_token")};
  auto ends = ids_in(ids.eos);
  const auto own_ends = ids_in(named.id("eos_token"));
  for (const auto own : ids_in(below(own_ends, "eos_token", vocabulary, directory)))
    if (std::find(ends.begin(), ends.end(), own) == ends.end()) ends.push_back(own);
  ids.eos = value_of(ends);
  return ids;
}

std::string with_token_ids(const std::string& config, const TokenIds& ids) {
  auto json = generation_in(config);
  if (!json) return config;
  bool same = true;
  for (const auto& [key, value] : {std::pair{kKeys[0], &ids.bos}, std::pair{kKeys[1], &ids.eos},
                                   std::pair{kKeys[2], &ids.pad}}) {
    if (value->is_null() || ids_at(*json, key) == ids_in(*value)) continue;
    json->set(key, *value);
    same = false;
  }
  if (same) return config;
  const auto text = json->dump(2) + "\n";
  return with_quoted_not_numbers(config) == config ? text : with_bare_not_numbers(text);
}

std::string with_token_ids_of(const fs::path& model, const std::string& config) {
  const auto said = generation_in(config);
  if (!said) return config;
  const Json of_model = object_in(model / "config.json");
  const auto lacking = [&](const char* key) {
    return ids_at(*said, key).empty() ? value_of(ids_at(of_model, key)) : Json();
  };
  return with_token_ids(config, {lacking(kKeys[0]), lacking(kKeys[1]), lacking(kKeys[2])});
}

}  // namespace lockstep
