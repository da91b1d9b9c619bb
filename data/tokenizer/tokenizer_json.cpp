#include "data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/json.h"
#include "core/utf8.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/word_patterns.h"

namespace lockstep {
namespace {

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

// The character of each byte in ByteLevel. Printable bytes of Latin-1 are unchanged; the others are
// numbered from U+0100 on.
constexpr auto kByteCharacters = [] {
  std::array<std::uint16_t, 256> characters{};
  std::uint16_t next = 0x100;
  for (std::uint16_t byte = 0; byte < 256; ++byte) {
    const bool is_seen = (0x21 <= byte && byte <= 0x7e) || (0xa1 <= byte && byte <= 0xac) ||
                         (0xae <= byte && byte <= 0xff);
    characters[byte] = is_seen ? byte : next++;
  }
  return characters;
}();

// Writing is how a vocabulary writes tokens: unchanged, or for ByteLevel with a visible character
// for each byte.
class Writing {
 public:
  explicit Writing(bool is_byte_level) : is_byte_level_(is_byte_level) {
    byte_of_.fill(-1);
    for (std::size_t byte = 0; byte < 256; ++byte)
      byte_of_[kByteCharacters[byte]] = static_cast<std::int32_t>(byte);
  }

  // Throws DataError if a character is not in the alphabet.
  std::string bytes(std::string_view written) const {
    auto out = find(written);
    if (!out) refuse('"', written, "\" has a character that does not represent a byte");
    return *std::move(out);
  }
  bool has(std::string_view written) const { return find(written).has_value(); }

 private:
  std::optional<std::string> find(std::string_view written) const {
    std::string out;
    if (!is_byte_level_) return std::string(written);
    for (std::size_t i = 0; i < written.size();) {
      const auto [code, count] = character(written.substr(i));
      if (code >= byte_of_.size() || byte_of_[code] < 0) return {};
      out.push_back(static_cast<char>(byte_of_[code]));
      i += count;
    }
    return out;
  }

  // Handles one or two bytes; longer characters are not in the alphabet.
  static std::pair<std::size_t, std::size_t> character(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    if (first < 0x80) return {first, 1};
    if (first < 0xc2 || first > 0xdf || text.size() < 2) return {SIZE_MAX, 1};
    return {(first & 0x1fu) << 6 | (static_cast<unsigned char>(text[1]) & 0x3fu), 2};
  }

  bool is_byte_level_;
  std::array<std::int32_t, 0x144> byte_of_{};
};

std::string escaped(const std::string& literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view(R"(\^$.[]|()?*+{}-#)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Reads {"Regex": ...} or {"String": ...}.
std::string pattern_in(const Json& json) {
  const Json& pattern = json.at("pattern");
  const Json* regex = pattern.find("Regex");
  return regex != nullptr ? regex->as_string() : escaped(text_at(pattern, "String"));
}

void read_normalizer(const Json& json, std::vector<BpeDefinition::Normalizer>& out) {
  using Kind = BpeDefinition::Normalizer::Kind;
  const auto& type = text_at(json, "type");
  if (type == "Sequence") {
    for (const auto& one : json.at("normalizers").as_array())
      read_normalizer(one, out);
    return;
  }
  if (type == "Prepend")
    return out.push_back({.kind = Kind::prepend, .content = text_at(json, "prepend")});
  if (type == "Replace")
    return out.push_back(
        {.kind = Kind::replace, .pattern = pattern_in(json), .content = text_at(json, "content")});
  constexpr std::pair<const char*, NormalForm> kForms[] = {{"NFC", NormalForm::nfc},
                                                           {"NFD", NormalForm::nfd},
                                                           {"NFKC", NormalForm::nfkc},
                                                           {"NFKD", NormalForm::nfkd}};
  for (const auto& [name, form] : kForms)
    if (type == name) return out.push_back({.kind = Kind::form, .form = form});
  refuse("\"", type, "\", expected NFC, NFD, NFKC, NFKD, Prepend, Replace or a Sequence of these");
}

// PreTokenizer reads pre_tokenizer, which splits text into words.
class PreTokenizer {
 public:
  using Step = BpeDefinition::Step;
  using Kind = Step::Kind;

  void read(const Json& json) {
    const auto& type = text_at(json, "type");
    if (type == "Sequence") {
      for (const auto& one : json.at("pretokenizers").as_array())
        read(one);
      return;
    }
    if (is_byte_level_) refuse(type, " after ByteLevel; expected ByteLevel to be the last");
    if (type == "ByteLevel") {
      is_byte_level_ = true;
      if (flag(json, "add_prefix_space", true))
        steps_.push_back({.kind = Kind::prefix, .content = " "});
      if (flag(json, "use_regex", true)) steps_.push_back({.pattern = std::string(kGpt2Words)});
    } else if (type == "Digits") {
      const bool one = flag(json, "individual_digits", false);
      steps_.push_back({.pattern = one ? R"(\p{N})" : R"(\p{N}+)"});
    } else if (type == "Split") {
      read_split(json);
    } else if (type == "Metaspace") {
      read_metaspace(json);
    } else {
      refuse("\"", type, "\", expected ByteLevel, Metaspace, Split, Digits or a Sequence");
    }
  }

  bool is_byte_level() const { return is_byte_level_; }
  std::vector<Step> steps() && { return std::move(steps_); }

 private:
  void read_split(const Json& json) {
    const auto& behavior = text_at(json, "behavior");
    const bool inverted = flag(json, "invert", false);
    Step step{.pattern = pattern_in(json)};
    if (behavior == "Removed")
      step.kind = inverted ? Kind::keep_matches : Kind::drop_matches;
    else if (behavior == "MergedWithPrevious" && !inverted)
      step.kind = Kind::merge_with_previous;
    else if (behavior == "MergedWithNext" && !inverted)
      step.kind = Kind::merge_with_next;
    else if (behavior != "Isolated")  // the same if inverted
      refuse("a Split with behavior \"", behavior, inverted ? "\", inverted" : "\"",
             "; expected Isolated, Removed, MergedWithPrevious or MergedWithNext, the last two not "
             "inverted");
    steps_.push_back(std::move(step));
  }

  // Spaces become `replacement`, which is also put before a text; each one starts a word.
  void read_metaspace(const Json& json) {
    const auto& mark = text_at(json, "replacement");
    if (mark.empty() || utf8_at(mark).bytes != mark.size())
      refuse("Metaspace: replacement \"", mark, "\", expected one character");
    const Json* scheme = json.find("prepend_scheme");
    const auto prepend = !is_absent(scheme)                     ? scheme->as_string()
                         : flag(json, "add_prefix_space", true) ? std::string("always")
                                                                : "never";
    if (prepend != "always" && prepend != "first" && prepend != "never")
      refuse("Metaspace: prepend_scheme \"", prepend, "\", expected always, first or never");
    if (!flag(json, "add_prefix_space", true) && prepend != "never")
      refuse("Metaspace: add_prefix_space is false, but prepend_scheme is \"", prepend,
             "\"; remove one of the two");
    steps_.push_back({.kind = Kind::replace, .pattern = " ", .content = mark});
    if (prepend != "never")
      steps_.push_back({.kind = Kind::prefix, .content = mark, .is_first = prepend == "first"});
    if (flag(json, "split", true))
      steps_.push_back({.kind = Kind::merge_with_next, .pattern = escaped(mark)});
  }

  std::vector<Step> steps_;
  bool is_byte_level_ = false;
};

// Decoder reads decoder, which changes the texts of tokens. It supports only the steps that undo
// the fallback to bytes.
class Decoder {
 public:
  explicit Decoder(BpeDefinition& out) : out_(out) {}

  void read(const Json& json) {
    const auto& type = text_at(json, "type");
    if (type == "Sequence") {
      for (const auto& one : json.at("decoders").as_array())
        read(one);
    } else if (type == "Replace" && !is_fused_) {
      read_normalizer(json, out_.decoded);
    } else if (type == "ByteFallback" && !is_fused_) {
      has_fallback_ = true;
    } else if (type == "Fuse") {
      is_fused_ = true;
    } else if (type == "Strip" && is_fused_ && !out_.drops_first_space) {
      if (text_at(json, "content") != " " || json.at("start").as_integer() != 1 ||
          json.at("stop").as_integer() != 0)
        refuse("a Strip; expected content \" \", start 1 and stop 0");
      out_.drops_first_space = true;
    } else {
      refuse("\"", type, "\"", kExpected);
    }
  }
  void finish() const {
    if (!has_fallback_) refuse("no ByteFallback", kExpected);
  }

 private:
  static constexpr const char* kExpected =
      "; expected a Sequence of Replace, ByteFallback and Fuse, optionally followed by a Strip";
  BpeDefinition& out_;
  bool is_fused_ = false, has_fallback_ = false;
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
  // Old files have no type.
  if (const Json* type = json.find("type"); type != nullptr && type->as_string() != "BPE")
    refuse("type: \"", type->as_string(),
           "\", expected BPE. Lockstep supports no other type; use a model with a BPE tokenizer");
  if (const Json* dropout = json.find("dropout"); !is_absent(dropout) && dropout->as_double() != 0)
    refuse("dropout makes tokens random; set it to null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json* text = json.find(key); !is_absent(text) && !text->as_string().empty())
      refuse(key, " \"", text->as_string(), "\", expected \"\"");
}

void read_vocabulary(const Json& json, const Writing& writing, BpeDefinition& out) {
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
    // Some vocabularies also contain added tokens, unchanged. Special ones are left out here, so
    // that untrusted text never becomes one.
    if (const auto same = added.find(written); same != added.end()) {
      if (same->second->id != id)
        refuse("the added token \"", written, "\" has the id ", same->second->id, ", but ", id,
               " in the vocabulary");
      if (same->second->special || !writing.has(written)) continue;
    } else {
      take(id);
    }
    if (!out.tokens.emplace(writing.bytes(written), id).second)
      refuse("two tokens are \"", written, '"');
  }
}

// Reads "a b" or ["a", "b"].
std::pair<std::string, std::string> parts_of(const Json& merge) {
  if (merge.is_array()) {
    if (merge.as_array().size() != 2) refuse("expected two parts");
    return {merge.as_array()[0].as_string(), merge.as_array()[1].as_string()};
  }
  const auto& text = merge.as_string();
  const auto space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    refuse('"', text, "\", expected two parts separated by a space");
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_merges(const Json& json, const Writing& writing, BpeDefinition& out) {
  // Skips merges with a special token, because it is split off before merging.
  std::unordered_set<std::string_view> special;
  for (const auto& token : out.added)
    if (token.special) special.insert(token.content);
  const auto id_of = [&](const std::string& bytes, const std::string& written) {
    const auto found = out.tokens.find(bytes);
    if (found == out.tokens.end()) refuse('"', written, "\" is not a token");
    return found->second;
  };
  for (const auto& merge : json.as_array())
    in_context(
        [&] {
          const auto [left, right] = parts_of(merge);
          for (const auto& part : {left, right, left + right})
            if (special.contains(part)) return;
          const auto a = writing.bytes(left), b = writing.bytes(right);
          out.merges.push_back({id_of(a, left), id_of(b, right), id_of(a + b, left + right),
                                static_cast<std::uint32_t>(out.merges.size())});
        },
        "merge ", out.merges.size() + 1);
}

// Reads <0x00> to <0xFF>. With all of them no text is unknown, so unk_token is not read.
void read_byte_tokens(BpeDefinition& out) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto name = str("<0x", kHex[byte / 16], kHex[byte % 16], '>');
    const auto found = out.tokens.find(name);
    if (found == out.tokens.end())
      refuse("byte_fallback is true, but there is no token ", name, "; expected <0x00> to <0xFF>");
    out.byte_tokens.push_back(found->second);
  }
}

BpeDefinition read(const Json& json) {
  BpeDefinition out;
  const Json& model = json.at("model");
  // Checked first, because other kinds also have other normalizers and pre-tokenizers.
  in_context([&] { refuse_other_models(model); }, "model");
  if (const Json* normalizer = json.find("normalizer"); !is_absent(normalizer))
    in_context([&] { read_normalizer(*normalizer, out.normalizers); }, "normalizer");
  PreTokenizer words;
  if (const Json* split = json.find("pre_tokenizer"); !is_absent(split))
    in_context([&] { words.read(*split); }, "pre_tokenizer");
  const bool is_byte_level = words.is_byte_level();
  const bool falls_back = flag(model, "byte_fallback", false);
  if (is_byte_level == falls_back)
    refuse(is_byte_level ? "both a ByteLevel pre_tokenizer and model.byte_fallback true"
                         : "neither a ByteLevel pre_tokenizer nor model.byte_fallback true",
           "; expected exactly one of them");
  out.steps = std::move(words).steps();
  if (falls_back) {
    in_context(
        [&] {
          Decoder decoder(out);
          if (const Json* chain = json.find("decoder"); !is_absent(chain)) decoder.read(*chain);
          decoder.finish();
        },
        "decoder");
  }
  if (const Json* added = json.find("added_tokens"); !is_absent(added))
    in_context([&] { out.added = read_added(*added); }, "added_tokens");
  in_context(
      [&] {
        const Writing writing(is_byte_level);
        out.whole_words = flag(model, "ignore_merges", false);
        read_vocabulary(model.at("vocab"), writing, out);
        read_merges(model.at("merges"), writing, out);
        if (falls_back) read_byte_tokens(out);
      },
      "model");
  return out;
}

// Returns the token `key` of tokenizer_config.json: its content, as a string or as a member.
std::string named(const Json& config, const char* key) {
  const Json* value = config.find(key);
  if (value == nullptr || value->is_null()) return {};
  return value->is_object() ? text_at(*value, "content") : value->as_string();
}

}  // namespace

TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, where, /*depth=*/16);
  return in_context(
      [&] {
        return TokenizerConfig{named(json, "bos_token"), named(json, "eos_token")};
      },
      where);
}

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    append_utf8(text, kByteCharacters[static_cast<unsigned char>(byte)]);
  return text;
}

BpeDefinition parse_tokenizer_json(const Json& json, const std::string& where) {
  return in_context([&] { return read(json); }, where);
}

}  // namespace lockstep
