#include "data/tokenizer/rank_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "data/tokenizer/word_patterns.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostTokenBytes = 256;                  // published tokens have at most 128
constexpr std::int64_t kMostSpecial = std::int64_t{1} << 16;  // a published tekken.json has 1000

// Returns the value of a base64 character, or -1.
int value_of(char c) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto found = kDigits.find(c);
  return found == std::string_view::npos ? -1 : static_cast<int>(found);
}

// Decodes RFC 4648 with padding to four characters. Throws DataError.
std::string from_base64(std::string_view text) {
  const auto refuse = [&] { throw DataError(str('"', text, "\" is not a token in base64")); };
  if (text.empty() || text.size() % 4 != 0) refuse();
  const auto padding = text.size() - text.find_last_not_of('=') - 1;
  if (padding > 2) refuse();
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int value = i < text.size() - padding ? value_of(text[i]) : 0;
    if (value < 0) refuse();
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 == 3)
      for (const int shift : {16, 8, 0})
        bytes += static_cast<char>(bits >> shift & 0xff);
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

// Parses a decimal number without a sign; returns -1 for other text.
std::int64_t rank_in(std::string_view text) {
  std::int64_t rank = -1;
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, rank);
  return error == std::errc() && stop == end && rank >= 0 ? rank : -1;
}

struct Line {
  std::string_view token, rank;
};
// Returns the two words of a line; empty ones unless there are two.
Line words_of(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const auto space = line.find(' ');
  if (space == std::string_view::npos) return {};
  return {line.substr(0, space), line.substr(space + 1)};
}

// Returns all pairs that make one of `tokens`, whose index is the rank.
std::vector<Bpe::Merge> merges_of(const std::vector<std::string>& tokens, std::int32_t first_id) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank)
    ids.emplace(tokens[rank], first_id + static_cast<std::int32_t>(rank));
  std::vector<Bpe::Merge> merges;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.push_back({left->second, right->second, first_id + static_cast<std::int32_t>(rank),
                          static_cast<std::uint32_t>(rank)});
    }
  }
  return merges;
}

// Ranks collects tokens in the order of their ranks, which start at 0.
class Ranks {
 public:
  void add(std::string token, std::int64_t rank) {
    if (rank != std::ssize(tokens_))
      throw DataError(str("rank ", rank, ", expected ", tokens_.size(),
                          ": ranks must be 0, 1, 2, ... in order"));
    if (rank >= kMostTokens) throw DataError(str("more than ", kMostTokens, " tokens"));
    if (token.size() > kMostTokenBytes)
      throw DataError(
          str("a token of ", token.size(), " bytes; expected at most ", kMostTokenBytes));
    tokens_.push_back(std::move(token));
  }
  std::int64_t count() const { return std::ssize(tokens_); }

  // Makes tokens and merges of the ranks; ids start at `first_id`.
  void give(BpeDefinition& out, std::int32_t first_id) const {
    out.whole_words = true;
    for (std::size_t rank = 0; rank < tokens_.size(); ++rank)
      if (!out.tokens.emplace(tokens_[rank], first_id + static_cast<std::int32_t>(rank)).second)
        throw DataError(str("rank ", rank, " has the same token as an earlier rank"));
    out.merges = merges_of(tokens_, first_id);
  }

 private:
  std::vector<std::string> tokens_;
};

void add_special(BpeDefinition& out, std::string name, std::int64_t id) {
  out.added.push_back(
      {.id = static_cast<std::int32_t>(id), .content = std::move(name), .special = true});
}

// List of Meta for Llama 3.1 and later: github.com/meta-llama/llama-models,
// models/llama3/tokenizer.py.
void add_llama3(BpeDefinition& out, std::int64_t first) {
  constexpr std::array kNames = {"<|begin_of_text|>",
                                 "<|end_of_text|>",
                                 "<|reserved_special_token_0|>",
                                 "<|reserved_special_token_1|>",
                                 "<|finetune_right_pad_id|>",
                                 "<|step_id|>",
                                 "<|start_header_id|>",
                                 "<|end_header_id|>",
                                 "<|eom_id|>",
                                 "<|eot_id|>",
                                 "<|python_tag|>",
                                 "<|image|>"};
  constexpr std::int64_t kAll = 256;
  for (std::int64_t i = 0; i < kAll; ++i)
    add_special(out,
                i < std::ssize(kNames)
                    ? std::string(kNames[static_cast<std::size_t>(i)])
                    : str("<|reserved_special_token_", 2 + i - std::ssize(kNames), "|>"),
                first + i);
  out.steps.push_back({.pattern = std::string(kLlama3Words)});
  out.begin_token = kNames[0];
  out.end_token = kNames[1];
}

// Source: github.com/QwenLM/Qwen, tokenization_qwen.py.
void add_qwen(BpeDefinition& out, std::int64_t first) {
  constexpr std::int64_t kExtras = 205;
  for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    add_special(out, name, first++);
  for (std::int64_t i = 0; i < kExtras; ++i)
    add_special(out, str("<|extra_", i, "|>"), first + i);
  out.normalizers.push_back({.form = NormalForm::nfc});
  out.steps.push_back({.pattern = std::string(kQwenWords)});
  out.begin_token = out.end_token = "<|endoftext|>";
}

// Special tokens of files without special_tokens: github.com/mistralai/mistral-common, tekken.py.
constexpr std::array kTekkenSpecials = {"<unk>",
                                        "<s>",
                                        "</s>",
                                        "[INST]",
                                        "[/INST]",
                                        "[AVAILABLE_TOOLS]",
                                        "[/AVAILABLE_TOOLS]",
                                        "[TOOL_RESULTS]",
                                        "[/TOOL_RESULTS]",
                                        "[TOOL_CALLS]",
                                        "[IMG]",
                                        "<pad>",
                                        "[IMG_BREAK]",
                                        "[IMG_END]",
                                        "[PREFIX]",
                                        "[MIDDLE]",
                                        "[SUFFIX]",
                                        "[SYSTEM_PROMPT]",
                                        "[/SYSTEM_PROMPT]",
                                        "[TOOL_CONTENT]"};

// Returns the number of a version such as "v7"; 0 for other text.
std::int64_t version_of(const Json& config) {
  const Json* version = config.find("version");
  if (version == nullptr || !version->is_string() || !version->as_string().starts_with('v'))
    return 0;
  return std::max(rank_in(std::string_view(version->as_string()).substr(1)), std::int64_t{0});
}

// Adds special tokens by id: those in the file, and <SPECIAL_i> for other ids below `count`.
void add_tekken_specials(const Json& json, std::int64_t count, BpeDefinition& out) {
  constexpr std::int64_t kLastWithout = 7;
  std::vector<std::string> names(static_cast<std::size_t>(count));
  const auto name = [&](std::int64_t id, const std::string& text) {
    auto& place = names[static_cast<std::size_t>(id)];
    if (!place.empty()) throw DataError(str("two special tokens have the rank ", id));
    if (text.empty()) throw DataError(str("the special token of rank ", id, " has no name"));
    if (std::ranges::count(names, text) > 0)
      throw DataError(str("two special tokens are \"", text, '"'));
    place = text;
  };
  if (const Json* special = json.find("special_tokens");
      special != nullptr && !special->is_null()) {
    for (const Json& one : special->as_array())
      name(integer_at(one, "rank", 0, count - 1), text_at(one, "token_str"));
  } else {
    const auto version = version_of(json.at("config"));
    if (version == 0 || version > kLastWithout)
      throw DataError(str("special_tokens is missing; expected it from version v", kLastWithout + 1,
                          " on, or config.version v1 to v", kLastWithout));
    for (std::size_t id = 0; id < std::min(kTekkenSpecials.size(), names.size()); ++id)
      names[id] = kTekkenSpecials[id];
  }
  for (std::int64_t id = 0; id < count; ++id) {
    auto& text = names[static_cast<std::size_t>(id)];
    add_special(out, text.empty() ? str("<SPECIAL_", id, '>') : text, id);
  }
}

}  // namespace

bool is_rank_file(std::string_view text) {
  const auto [token, rank] = words_of(text.substr(0, text.find('\n')));
  const auto is_base64 = [](char c) { return c == '=' || value_of(c) >= 0; };
  return !token.empty() && std::ranges::all_of(token, is_base64) && rank_in(rank) >= 0;
}

BpeDefinition parse_rank_file(std::string_view text, const std::string& where) {
  Ranks ranks;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line == "\r") continue;
    in_context(
        [&] {
          const auto [token, rank] = words_of(line);
          if (rank_in(rank) < 0)
            throw DataError("expected a token in base64, a space and its rank");
          ranks.add(from_base64(token), rank_in(rank));
        },
        where, ": line ", number);
  }
  constexpr std::int64_t kLlama3 = 128'000, kQwen = 151'643;
  return in_context(
      [&] {
        BpeDefinition out;
        if (ranks.count() == kLlama3)
          add_llama3(out, kLlama3);
        else if (ranks.count() == kQwen)
          add_qwen(out, kQwen);
        else
          throw DataError(str("a rank file of ", ranks.count(), " tokens; expected ", kLlama3,
                              " (Llama 3) or ", kQwen,
                              " (Qwen). Lockstep supports the pattern and the special tokens of "
                              "these two only. Use the tokenizer.json of the same model"));
        ranks.give(out, 0);
        return out;
      },
      where);
}

bool is_tekken(const Json& json) {
  if (!json.is_object()) return false;
  const Json* vocabulary = json.find("vocab");
  return vocabulary != nullptr && vocabulary->is_array();
}

BpeDefinition parse_tekken(const Json& json, const std::string& where) {
  return in_context(
      [&] {
        const Json& config = json.at("config");
        const auto all = integer_at(config, "default_vocab_size", 1, kMostTokens);
        const auto special =
            integer_at(config, "default_num_special_tokens", 0, std::min(all, kMostSpecial));
        const auto& vocabulary = json.at("vocab").as_array();
        if (all - special > std::ssize(vocabulary))
          throw DataError(str("config.default_vocab_size ", all, " with ", special,
                              " special tokens; expected at most ",
                              std::ssize(vocabulary) + special, ", as vocab has ",
                              vocabulary.size(), " tokens"));
        BpeDefinition out;
        out.steps.push_back({.pattern = text_at(config, "pattern")});
        add_tekken_specials(json, special, out);
        out.begin_token = "<s>";
        out.end_token = "</s>";
        Ranks ranks;
        while (ranks.count() < all - special)
          in_context(
              [&] {
                const Json& one = vocabulary[static_cast<std::size_t>(ranks.count())];
                ranks.add(from_base64(text_at(one, "token_bytes")),
                          integer_at(one, "rank", 0, kMostTokens));
              },
              "vocab: token ", ranks.count());
        ranks.give(out, static_cast<std::int32_t>(special));
        return out;
      },
      where);
}

}  // namespace lockstep
