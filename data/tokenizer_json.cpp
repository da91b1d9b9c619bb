#include "data/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

// GPT-2's, which ByteLevel has of its own.
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

template <class... Args>
[[noreturn]] void refuse(const Args&... args) {
  throw DataError(str(args...));
}

bool is_absent(const Json* value) {
  return value == nullptr || value->is_null();
}

bool flag(const Json& json, const char* key, bool otherwise) {
  const Json* value = json.find(key);
  return is_absent(value) ? otherwise : value->as_bool();
}

// A vocabulary writes each byte as a character that can be seen: those of printable Latin-1 as they
// are, the others in their order from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(-1);
    std::size_t next = 0x100;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const bool is_seen = (0x21 <= byte && byte <= 0x7e) || (0xa1 <= byte && byte <= 0xac) ||
                           (0xae <= byte && byte <= 0xff);
      byte_of_[is_seen ? byte : next++] = static_cast<std::int32_t>(byte);
    }
  }

  // Throws DataError where a character is none of them.
  std::string bytes(std::string_view written) const {
    auto out = find(written);
    if (!out) refuse('"', written, "\" has a character that stands for no byte");
    return *std::move(out);
  }
  bool has(std::string_view written) const { return find(written).has_value(); }

 private:
  std::optional<std::string> find(std::string_view written) const {
    std::string out;
    for (std::size_t i = 0; i < written.size();) {
      const auto [code, count] = character(written.substr(i));
      if (code >= byte_of_.size() || byte_of_[code] < 0) return {};
      out.push_back(static_cast<char>(byte_of_[code]));
      i += count;
    }
    return out;
  }

  // Of one or two bytes; a longer one is none of the alphabet.
  static std::pair<std::size_t, std::size_t> character(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    if (first < 0x80) return {first, 1};
    if (first < 0xc2 || first > 0xdf || text.size() < 2) return {SIZE_MAX, 1};
    return {(first & 0x1fu) << 6 | (static_cast<unsigned char>(text[1]) & 0x3fu), 2};
  }

  std::array<std::int32_t, 0x144> byte_of_{};
};

void read_normalizer(const Json& json, std::vector<NormalForm>& forms) {
  const auto& type = text_at(json, "type");
  if (type == "Sequence") {
    for (const auto& one : json.at("normalizers").as_array())
      read_normalizer(one, forms);
    return;
  }
  constexpr std::pair<const char*, NormalForm> kForms[] = {{"NFC", NormalForm::nfc},
                                                           {"NFD", NormalForm::nfd},
                                                           {"NFKC", NormalForm::nfkc},
                                                           {"NFKD", NormalForm::nfkd}};
  for (const auto& [name, form] : kForms)
    if (type == name) return forms.push_back(form);
  refuse("normalizer: \"", type, "\", expected NFC, NFD, NFKC, NFKD or a Sequence of these");
}

std::string escaped(const std::string& literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view(R"(\^$.[]|()?*+{}-#)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// pre_tokenizer: how text is cut into words.
class PreTokenizer {
 public:
  using Step = TokenizerJson::Step;

  void read(const Json& json) {
    const auto& type = text_at(json, "type");
    if (type == "Sequence") {
      for (const auto& one : json.at("pretokenizers").as_array())
        read(one);
      return;
    }
    if (is_byte_level_) refuse("pre_tokenizer: ", type, " behind ByteLevel");
    if (type == "ByteLevel") {
      is_byte_level_ = true;
      if (flag(json, "add_prefix_space", true)) steps_.push_back({Step::Kind::prefix_space, ""});
      if (flag(json, "use_regex", true)) steps_.push_back({Step::Kind::isolate, kGpt2Pattern});
    } else if (type == "Digits") {
      const bool one = flag(json, "individual_digits", false);
      steps_.push_back({Step::Kind::isolate, one ? R"(\p{N})" : R"(\p{N}+)"});
    } else if (type == "Split") {
      read_split(json);
    } else {
      refuse("pre_tokenizer: \"", type, "\", expected ByteLevel, Split, Digits or a Sequence");
    }
  }

  std::vector<Step> steps() && {
    if (!is_byte_level_)
      refuse("pre_tokenizer: expected ByteLevel; of tokenizers only byte-level BPE is read");
    return std::move(steps_);
  }

 private:
  void read_split(const Json& json) {
    const Json& pattern = json.at("pattern");
    const Json* regex = pattern.find("Regex");
    Step step;
    step.pattern = regex != nullptr ? regex->as_string() : escaped(text_at(pattern, "String"));
    const auto& behavior = text_at(json, "behavior");
    if (behavior == "Removed")
      step.kind = flag(json, "invert", false) ? Step::Kind::keep_matches : Step::Kind::drop_matches;
    else if (behavior != "Isolated")  // inverted it is the same
      refuse("pre_tokenizer: a Split of behavior \"", behavior, "\", expected Isolated or Removed");
    steps_.push_back(std::move(step));
  }

  std::vector<Step> steps_;
  bool is_byte_level_ = false;
};

std::int32_t id_in(const Json& value, const std::string& token) {
  const auto id = value.as_integer();
  if (id < 0 || id >= kMostTokens)
    refuse("the id ", id, " of \"", token, "\", expected 0 to ", kMostTokens - 1);
  return static_cast<std::int32_t>(id);
}

std::vector<AddedToken> read_added(const Json& json) {
  std::vector<AddedToken> added;
  for (const auto& one : json.as_array()) {
    auto& token = added.emplace_back();
    token.content = text_at(one, "content");
    token.id = id_in(one.at("id"), token.content);
    token.single_word = flag(one, "single_word", false);
    token.lstrip = flag(one, "lstrip", false);
    token.rstrip = flag(one, "rstrip", false);
    token.normalized = flag(one, "normalized", true);
    token.special = flag(one, "special", false);
  }
  return added;
}

void refuse_other_models(const Json& json) {
  // Files of old have no type.
  if (const Json* type = json.find("type"); type != nullptr && type->as_string() != "BPE")
    refuse("\"", type->as_string(), "\", expected BPE");
  if (flag(json, "byte_fallback", false)) refuse("byte_fallback, which no byte-level BPE has");
  if (const Json* dropout = json.find("dropout"); !is_absent(dropout) && dropout->as_double() != 0)
    refuse("dropout makes tokens random; set it to null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json* text = json.find(key); !is_absent(text) && !text->as_string().empty())
      refuse(key, " \"", text->as_string(), "\", which no byte-level BPE has");
}

void read_vocabulary(const Json& json, const ByteAlphabet& alphabet, TokenizerJson& out) {
  std::vector<bool> taken(kMostTokens);
  const auto take = [&](std::int32_t id) {
    if (taken[static_cast<std::size_t>(id)]) refuse("two tokens have the id ", id);
    taken[static_cast<std::size_t>(id)] = true;
  };
  std::unordered_map<std::string_view, const AddedToken*> added;
  for (const auto& token : out.added)
    if (added.emplace(token.content, &token).second) take(token.id);
  const auto& vocabulary = json.as_object();
  out.tokens.reserve(vocabulary.size());
  for (const auto& [written, value] : vocabulary) {
    const auto id = id_in(value, written);
    // Some vocabularies name added tokens too, as they are. A special one is never made of a text
    // that is not to be trusted, and so is none of these.
    if (const auto same = added.find(written); same != added.end()) {
      if (same->second->id != id)
        refuse("the added token \"", written, "\" has the id ", same->second->id, ", and ", id,
               " in the vocabulary");
      if (same->second->special || !alphabet.has(written)) continue;
    } else {
      take(id);
    }
    if (!out.tokens.emplace(alphabet.bytes(written), id).second)
      refuse("two tokens are \"", written, '"');
  }
}

// "a b", or ["a", "b"].
std::pair<std::string, std::string> parts_of(const Json& merge) {
  if (merge.is_array()) {
    if (merge.as_array().size() != 2) refuse("expected two parts");
    return {merge.as_array()[0].as_string(), merge.as_array()[1].as_string()};
  }
  const auto& text = merge.as_string();
  const auto space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    refuse('"', text, "\", expected two parts and a space between");
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_merges(const Json& json, const ByteAlphabet& alphabet, TokenizerJson& out) {
  // Of a special token there is none: it is taken out of a text before.
  std::unordered_set<std::string_view> special;
  for (const auto& token : out.added)
    if (token.special) special.insert(token.content);
  const auto id_of = [&](const std::string& bytes, const std::string& written) {
    const auto found = out.tokens.find(bytes);
    if (found == out.tokens.end()) refuse('"', written, "\" is no token");
    return found->second;
  };
  for (const auto& merge : json.as_array())
    in_context(
        [&] {
          const auto [left, right] = parts_of(merge);
          for (const auto& part : {left, right, left + right})
            if (special.contains(part)) return;
          const auto a = alphabet.bytes(left), b = alphabet.bytes(right);
          out.merges.push_back({id_of(a, left), id_of(b, right), id_of(a + b, left + right)});
        },
        "merge ", out.merges.size() + 1);
}

TokenizerJson read(const Json& json) {
  TokenizerJson out;
  // First, as other kinds have other normalizers and pre-tokenizers too.
  if (const Json* model = json.find("model"))
    in_context([&] { refuse_other_models(*model); }, "model");
  if (const Json* forms = json.find("normalizer"); !is_absent(forms))
    read_normalizer(*forms, out.forms);
  PreTokenizer words;
  if (const Json* split = json.find("pre_tokenizer"); !is_absent(split)) words.read(*split);
  out.steps = std::move(words).steps();
  if (const Json* added = json.find("added_tokens"); !is_absent(added))
    in_context([&] { out.added = read_added(*added); }, "added_tokens");
  in_context(
      [&] {
        const Json& model = json.at("model");
        const ByteAlphabet alphabet;
        out.whole_words = flag(model, "ignore_merges", false);
        read_vocabulary(model.at("vocab"), alphabet, out);
        read_merges(model.at("merges"), alphabet, out);
      },
      "model");
  return out;
}

// The token that tokenizer_config.json calls `key`: its content, as text or as a member.
std::string named(const Json& config, const char* key) {
  const Json* value = config.find(key);
  if (value == nullptr || value->is_null()) return {};
  return value->is_object() ? text_at(*value, "content") : value->as_string();
}

}  // namespace

std::int32_t TokenizerJson::find(std::string_view added_token) const {
  const auto found = std::find_if(added.begin(), added.end(), [&](const AddedToken& token) {
    return token.content == added_token;
  });
  return found != added.end() ? found->id : -1;
}

std::int32_t TokenizerJson::vocabulary() const {
  std::int32_t most = -1;
  for (const auto& [bytes, id] : tokens)
    most = std::max(most, id);
  for (const auto& token : added)
    most = std::max(most, token.id);
  return most + 1;
}

TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, where, /*depth=*/16);
  return in_context(
      [&] {
        return TokenizerConfig{named(json, "bos_token"), named(json, "eos_token")};
      },
      where);
}

TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, where, /*depth=*/16);
  return in_context([&] { return read(json); }, where);
}

}  // namespace lockstep
