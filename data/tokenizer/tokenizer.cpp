#include "data/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/file.h"
#include "core/hash.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/byte_tokenizer_files.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kByteTokenizer = "bytes: ids 0 to 255 are bytes, 256 starts a document";

constexpr auto kBytes = [] {
  std::array<char, 256> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i);
  return bytes;
}();

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr std::int64_t kMostTokenizerBytes = std::int64_t{256} << 20;

// Returns "gpt2" for gpt2/tokenizer.json.
std::string name_of(const fs::path& file) {
  const auto directory = fs::absolute(file).lexically_normal().parent_path().filename().string();
  return directory.empty() ? file.filename().string() : directory;
}

// Special tokens from tokenizer_config.json beside it, or from the kind of file, or by convention;
// "" if unknown.
struct Ends {
  std::string document, end, prefix;
};

Ends ends_of(const fs::path& file, const BpeDefinition& definition) {
  TokenizerConfig config;
  if (const auto path = file.parent_path() / kConfigFile; path_exists(path))
    config = parse_tokenizer_config(read_text(path, kMostTokenizerBytes), path.string());
  if (config.document_token.empty()) config.document_token = definition.begin_token;
  if (config.end_token.empty()) config.end_token = definition.end_token;
  Ends ends{config.document_token, config.end_token,
            config.document_token.empty() ? config.end_token : config.document_token};
  // Instructed models may end their text with another token than the one between documents.
  if (ends.document.empty() && !ends.end.empty())
    ends.document = definition.find(kEndOfText) >= 0 ? kEndOfText : ends.end;
  for (const char* usual : {"<|begin_of_text|>", kEndOfText})
    if (ends.document.empty() && definition.find(usual) >= 0) ends.document = usual;
  if (ends.prefix.empty()) ends.prefix = ends.document;
  return ends;
}

// Lists a few special tokens: "; it has <s>, </s>, ...".
std::string special_tokens(const BpeDefinition& tokenizer) {
  constexpr std::size_t kMost = 5;
  std::string names;
  for (std::size_t i = 0; i < std::min(tokenizer.added.size(), kMost); ++i)
    names += str(i == 0 ? "; it has " : ", ", tokenizer.added[i].content);
  return tokenizer.added.size() > kMost ? names + ", ..." : names;
}

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  Memory memory;
  encode(text, ids, memory);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, Specials specials) const {
  std::string text;
  for (const auto id : ids)
    if (specials == Specials::named || !is_special(id)) text += bytes_of(id);
  if (about_.drops_first_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

ByteTokenizer::ByteTokenizer()
    : Tokenizer({.name = "bytes",
                 .hash = hash_hex(kByteTokenizer),
                 .vocabulary = kVocabulary,
                 .document_token = kDocumentToken,
                 .end_token = kDocumentToken,
                 .prefix_token = kDocumentToken}) {}

void ByteTokenizer::encode(std::string_view text, std::vector<std::int32_t>& ids,
                           Memory& /*memory*/) const {
  const auto before = ids.size();
  ids.resize(before + text.size());
  std::transform(text.begin(), text.end(), ids.begin() + static_cast<std::ptrdiff_t>(before),
                 [](char c) { return static_cast<std::int32_t>(static_cast<unsigned char>(c)); });
}

std::string_view ByteTokenizer::bytes_of(std::int32_t id) const {
  if (id < 0 || id >= static_cast<std::int32_t>(kBytes.size())) return {};
  return {&kBytes[static_cast<std::size_t>(id)], 1};
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& what,
                                          const std::string& document_token) {
  if (what == "bytes") {
    if (!document_token.empty())
      throw UsageError(str("the tokenizer bytes has no token ", document_token));
    return std::make_unique<ByteTokenizer>();
  }
  const auto file = tokenizer_file(what);
  if (document_token.empty() && is_byte_tokenizer(file)) return std::make_unique<ByteTokenizer>();
  const auto text = read_text(file, kMostTokenizerBytes);
  const auto definition = parse_tokenizer(text, file.string());
  if (!document_token.empty() && definition.find(document_token) < 0)
    throw UsageError(str(file.string(), ": no special token is named ", document_token,
                         special_tokens(definition)));
  const auto ends = ends_of(file, definition);
  Tokenizer::About about{.name = name_of(file),
                         .hash = hash_hex(text),
                         .vocabulary = definition.vocabulary(),
                         .document_token = definition.find(ends.document),
                         .end_token = definition.find(ends.end),
                         .prefix_token = definition.find(ends.prefix),
                         .drops_first_space = definition.drops_first_space};
  if (!document_token.empty()) about.document_token = definition.find(document_token);
  if (about.end_token < 0) about.end_token = about.document_token;
  return in_context([&] { return std::make_unique<BpeTokenizer>(definition, std::move(about)); },
                    file.string());
}

}  // namespace lockstep
