#include "data/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "core/file.h"
#include "core/json.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

// GPT-2's, which ByteLevel has of its own.
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const std::string& type_of(const Json& json) {
  return text_at(json, "type");
}

bool flag(const Json& json, const char* key, bool otherwise) {
  const Json* value = json.find(key);
  return value == nullptr || value->is_null() ? otherwise : value->as_bool();
}

// A vocabulary writes each byte as a character that can be seen: those of printable Latin-1 as they
// are, the others in their order from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    std::int32_t next = 0x100;
    for (std::int32_t byte = 0; byte < 256; ++byte) {
      const bool is_seen = (0x21 <= byte && byte <= 0x7e) || (0xa1 <= byte && byte <= 0xac) ||
                           (0xae <= byte && byte <= 0xff);
      byte_of_[static_cast<std::size_t>(is_seen ? byte : next++)] = byte;
    }
  }
  // Throws DataError where a character is none of them.
  std::string bytes(std::string_view written) const {
    std::string out;
    for (std::size_t i = 0; i < written.size();) {
      const auto first = static_cast<unsigned char>(written[i]);
      std::size_t code = first;
      std::size_t count = 1;
      if (0xc2 <= first && first <= 0xc5 && i + 1 < written.size()) {
        code = (first & 0x1fu) << 6 | (static_cast<unsigned char>(written[i + 1]) & 0x3fu);
        count = 2;
      } else if (first >= 0x80) {
        code = byte_of_.size();
      }
      if (code >= byte_of_.size() || byte_of_[code] < 0)
        throw DataError(str("\"", written, "\" has a character that stands for no byte"));
      out.push_back(static_cast<char>(byte_of_[code]));
      i += count;
    }
    return out;
  }

 private:
  std::array<std::int32_t, 0x144> byte_of_ = [] {
    std::array<std::int32_t, 0x144> none{};
    none.fill(-1);
    return none;
  }();
};

std::string escaped(const std::string& literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view(R"(\^$.[]|()?*+{}-#)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

BpeTokenizer::BpeTokenizer(const std::filesystem::path& file)
    : BpeTokenizer(read_text(file, kMostBytes), file.string()) {}

BpeTokenizer::BpeTokenizer(std::string_view text, const std::string& where) {
  const Json json = Json::parse(text, where, /*depth=*/16);
  try {
    if (const Json* normalizer = json.find("normalizer"); normalizer && !normalizer->is_null())
      read_normalizer(*normalizer);
    if (const Json* split = json.find("pre_tokenizer"); split && !split->is_null())
      read_pre_tokenizer(*split);
    if (!is_byte_level_)
      throw DataError(
          "pre_tokenizer: expected ByteLevel; of other kinds than byte-level BPE none "
          "is read");
    read_model(json.at("model"), json.find("added_tokens"));
  } catch (const DataError& error) {
    throw DataError(str(where, ": ", error.what()));
  }
}

void BpeTokenizer::read_normalizer(const Json& json) {
  const auto& type = type_of(json);
  if (type == "Sequence") {
    for (const auto& one : json.at("normalizers").as_array())
      read_normalizer(one);
    return;
  }
  constexpr std::pair<const char*, NormalForm> kForms[] = {{"NFC", NormalForm::nfc},
                                                           {"NFD", NormalForm::nfd},
                                                           {"NFKC", NormalForm::nfkc},
                                                           {"NFKD", NormalForm::nfkd}};
  for (const auto& [name, form] : kForms)
    if (type == name) return forms_.push_back(form);
  throw DataError(
      str("normalizer: \"", type, "\", expected NFC, NFD, NFKC, NFKD or a Sequence of these"));
}

void BpeTokenizer::add_pattern(Step::Kind kind, const std::string& pattern) {
  steps_.push_back({kind, patterns_.size()});
  patterns_.emplace_back(pattern);
}

void BpeTokenizer::read_pre_tokenizer(const Json& json) {
  const auto& type = type_of(json);
  if (type == "Sequence") {
    for (const auto& one : json.at("pretokenizers").as_array())
      read_pre_tokenizer(one);
    return;
  }
  if (is_byte_level_) throw DataError(str("pre_tokenizer: ", type, " behind ByteLevel"));
  if (type == "ByteLevel") {
    is_byte_level_ = true;
    if (flag(json, "add_prefix_space", true)) steps_.push_back({Step::Kind::prefix_space});
    if (flag(json, "use_regex", true)) add_pattern(Step::Kind::isolate, kGpt2Pattern);
  } else if (type == "Digits") {
    add_pattern(Step::Kind::isolate,
                flag(json, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type == "Split") {
    read_split(json);
  } else {
    throw DataError(str("pre_tokenizer: \"", type,
                        "\", expected ByteLevel, Split, Digits or a Sequence of these"));
  }
}

void BpeTokenizer::read_split(const Json& json) {
  const Json& pattern = json.at("pattern");
  const auto& behavior = text_at(json, "behavior");
  const bool invert = flag(json, "invert", false);
  const Json* regex = pattern.find("Regex");
  const auto text = regex != nullptr ? regex->as_string() : escaped(text_at(pattern, "String"));
  if (behavior == "Isolated")
    add_pattern(Step::Kind::isolate, text);  // whichever are the matches
  else if (behavior == "Removed")
    add_pattern(invert ? Step::Kind::keep_matches : Step::Kind::drop_matches, text);
  else
    throw DataError(
        str("pre_tokenizer: a Split of behavior \"", behavior, "\", expected Isolated or Removed"));
}

void BpeTokenizer::read_model(const Json& json, const Json* added) {
  // Files of old have no type.
  if (const Json* type = json.find("type"); type != nullptr && type->as_string() != "BPE")
    throw DataError(str("model: \"", type->as_string(), "\", expected BPE"));
  if (flag(json, "byte_fallback", false))
    throw DataError("model: byte_fallback, which no byte-level BPE has");
  if (const Json* dropout = json.find("dropout");
      dropout && !dropout->is_null() && dropout->as_double() != 0)
    throw DataError("model: dropout makes tokens random; set it to null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Json* text = json.find(key); text && !text->is_null() && !text->as_string().empty())
      throw DataError(
          str("model: ", key, " \"", text->as_string(), "\", which no byte-level BPE has"));

  const ByteAlphabet alphabet;
  std::unordered_map<std::string, std::int32_t> ids;  // by bytes
  const auto& vocabulary = json.at("vocab").as_object();
  ids.reserve(2 * vocabulary.size());
  const auto put = [&](std::int64_t id, const std::string& bytes, const std::string& name) {
    if (id < 0 || id >= kMostTokens)
      throw DataError(str("the id ", id, " of \"", name, "\", expected 0 to ", kMostTokens - 1));
    const auto at = static_cast<std::size_t>(id);
    if (at >= bytes_of_.size()) bytes_of_.resize(at + 1);
    bytes_of_[at] = bytes;
    return static_cast<std::int32_t>(id);
  };
  // Some vocabularies name added tokens too, as they are.
  std::unordered_map<std::string_view, std::int64_t> added_ids;
  if (added != nullptr && !added->is_null())
    for (const auto& one : added->as_array())
      added_ids.emplace(text_at(one, "content"), one.at("id").as_integer());
  for (const auto& [written, id] : vocabulary) {
    const auto number = id.as_integer();
    const auto same = added_ids.find(written);
    const bool is_added = same != added_ids.end() && same->second == number;
    const auto bytes = is_added ? written : alphabet.bytes(written);
    const auto token = put(number, bytes, written);
    if (!is_added && !ids.emplace(bytes, token).second)
      throw DataError(str("model: two tokens are \"", written, '"'));
  }
  std::vector<Bpe::Merge> merges;
  const auto id_of = [&](const std::string& bytes, const std::string& what) {
    const auto found = ids.find(bytes);
    if (found == ids.end())
      throw DataError(str("model: merge ", merges.size() + 1, ": ", what, " is no token"));
    return found->second;
  };
  for (const auto& merge : json.at("merges").as_array()) {
    std::string left, right;
    if (merge.is_array()) {
      if (merge.as_array().size() != 2)
        throw DataError(str("model: merge ", merges.size() + 1, ": expected two parts"));
      left = merge.as_array()[0].as_string();
      right = merge.as_array()[1].as_string();
    } else {
      const auto& text = merge.as_string();
      const auto space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        throw DataError(
            str("model: merge ", merges.size() + 1, ": \"", text, "\", expected two parts"));
      left = text.substr(0, space);
      right = text.substr(space + 1);
    }
    const auto a = alphabet.bytes(left), b = alphabet.bytes(right);
    merges.push_back({id_of(a, left), id_of(b, right), id_of(a + b, left + right)});
  }
  bpe_.emplace_back(ids, merges, flag(json, "ignore_merges", false));

  is_special_.assign(bytes_of_.size(), false);
  if (added != nullptr && !added->is_null())
    for (const auto& one : added->as_array()) {
      AddedToken token{.id = 0,
                       .content = text_at(one, "content"),
                       .single_word = flag(one, "single_word", false),
                       .lstrip = flag(one, "lstrip", false),
                       .rstrip = flag(one, "rstrip", false),
                       .normalized = flag(one, "normalized", true),
                       .special = flag(one, "special", false)};
      token.id = put(one.at("id").as_integer(), token.content, token.content);
      is_special_.resize(bytes_of_.size());
      is_special_[static_cast<std::size_t>(token.id)] = token.special;
      added_.push_back(std::move(token));
    }
  std::vector<AddedToken> before, behind;
  for (auto token : added_) {
    if (token.normalized) {
      token.content = with_forms(token.content);
      behind.push_back(std::move(token));
    } else {
      before.push_back(std::move(token));
    }
  }
  before_forms_ = AddedTokens(before);
  behind_forms_ = AddedTokens(behind);
}

std::string BpeTokenizer::with_forms(std::string text) const {
  for (const auto form : forms_)
    text = normalized(text, form);
  return text;
}

void BpeTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids,
                          Memory& memory) const {
  std::string replaced;
  if (valid_utf8(text) != text.size()) {
    replaced = replaced_utf8(text);
    text = replaced;
  }
  const auto words = [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr)
      ids.push_back(token->id);
    else
      encode_part(part, 0, ids, memory);
  };
  before_forms_.split(text, [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr)
      ids.push_back(token->id);
    else if (forms_.empty())
      behind_forms_.split(part, words);
    else
      behind_forms_.split(with_forms(std::string(part)), words);
  });
}

std::vector<std::int32_t> BpeTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  Memory memory;
  encode(text, ids, memory);
  return ids;
}

void BpeTokenizer::encode_part(std::string_view text, std::size_t step,
                               std::vector<std::int32_t>& ids, Memory& memory) const {
  if (step == steps_.size()) return bpe_.front().encode(text, ids, memory.words);
  const auto kind = steps_[step].kind;
  if (kind == Step::Kind::prefix_space) {
    if (text.starts_with(' ')) return encode_part(text, step + 1, ids, memory);
    return encode_part(str(' ', text), step + 1, ids, memory);
  }
  patterns_[steps_[step].pattern].split(text, [&](std::string_view part, bool matches) {
    if (kind == Step::Kind::isolate || matches == (kind == Step::Kind::keep_matches))
      encode_part(part, step + 1, ids, memory);
  });
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids, Specials specials) const {
  std::string text;
  for (const auto id : ids) {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at >= bytes_of_.size() || bytes_of_[at].empty())
      throw DataError(str("no token has the id ", id));
    if (specials == Specials::named || !is_special_[at]) text += bytes_of_[at];
  }
  return text;
}

std::int32_t BpeTokenizer::find(std::string_view content) const {
  const auto found = std::find_if(added_.begin(), added_.end(),
                                  [&](const auto& token) { return token.content == content; });
  return found != added_.end() ? found->id : -1;
}

}  // namespace lockstep
