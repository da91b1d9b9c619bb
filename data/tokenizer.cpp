#include "data/tokenizer.h"

#include <algorithm>
#include <array>

#include "core/file.h"
#include "core/hash.h"
#include "core/json.h"
#include "data/bpe_tokenizer.h"
#include "data/hub.h"
#include "data/tokenizer_json.h"

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

constexpr const char* kFile = "tokenizer.json";
constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kEndOfText = "<|endoftext|>";
constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;

// The command that makes a tokenizer.json of what lies in a directory.
std::string conversion_of(const fs::path& directory) {
  return str("AutoTokenizer.from_pretrained(\"", directory.string(),
             "\").save_pretrained(\"DIR\")");
}

// The kind of a tokenizer that is written otherwise; "": `text` may be a tokenizer.json.
//   SentencePiece: a protobuf, whose first field (1, with a length) is the piece of id 0
//   a rank file: lines of a token in base64, a space and its rank
//   tekken.json: an object whose vocabulary is a list of objects
std::string other_kind(std::string_view text, const std::string& where) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin != std::string_view::npos && text[begin] == '{') {
    if (text.find("\"token_bytes\"") == std::string_view::npos) return "";
    const Json json = Json::parse(text, where);
    const Json* vocabulary = json.find("vocab");
    return vocabulary != nullptr && vocabulary->is_array() ? "a tekken.json" : "";
  }
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? int{static_cast<unsigned char>(text[i])} : 0;
  };
  constexpr int kField = 10;  // number 1, with a length: of a piece, and in it of its text
  if (byte(0) == kField && byte(2) == kField && byte(3) > 0 && byte(3) + 2 <= byte(1))
    return "a SentencePiece model";
  const auto line = text.substr(0, text.find('\n'));
  const auto space = line.find(' ');
  const bool is_ranked =
      space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
      line.find_first_not_of("0123456789\r", space + 1) == std::string_view::npos;
  return is_ranked ? "a rank file, as tiktoken's" : "";
}

// How to get a tokenizer.json of a tokenizer that is written otherwise; "": none lies there.
std::string other_form(const fs::path& directory) {
  const auto has = [&](const char* name) { return path_exists(directory / name); };
  const char* found = has("vocab.json") && has("merges.txt") ? "vocab.json and merges.txt" : "";
  for (const char* name : {"tokenizer.model", "qwen.tiktoken", "tekken.json"})
    if (*found == '\0' && has(name)) found = name;
  if (*found == '\0') return "";
  return str(", but ", found,
             ", of which the package transformers makes one: ", conversion_of(directory));
}

fs::path json_of(const std::string& what) {
  fs::path path = what;
  if (directory_exists(path)) {
    if (!path_exists(path / kFile))
      throw DataError(str(path.string(), ": holds no ", kFile, other_form(path)));
    return path / kFile;
  }
  if (!path_exists(path)) {
    const auto advice = download_advice(what);
    throw DataError(str(what, ": no such tokenizer; expected bytes, a ", kFile,
                        ", or a directory that holds one", advice.empty() ? "" : ". ", advice));
  }
  return path;
}

// "gpt2" of gpt2/tokenizer.json.
std::string name_of(const fs::path& file) {
  const auto directory = fs::absolute(file).lexically_normal().parent_path().filename().string();
  return directory.empty() ? kFile : directory;
}

// By tokenizer_config.json beside it, or as is usual; empty: none is known.
struct Ends {
  std::string document, end, prefix;
};

Ends ends_of(const fs::path& file, const TokenizerJson& tokenizer) {
  TokenizerConfig config;
  if (const auto path = file.parent_path() / kConfigFile; path_exists(path))
    config = parse_tokenizer_config(read_text(path, kMostBytes), path.string());
  Ends ends{config.document_token, config.end_token,
            config.document_token.empty() ? config.end_token : config.document_token};
  // Models that were instructed may end what they say by another token than stands between
  // documents.
  if (ends.document.empty() && !ends.end.empty())
    ends.document = tokenizer.find(kEndOfText) >= 0 ? kEndOfText : ends.end;
  for (const char* usual : {"<|begin_of_text|>", kEndOfText})
    if (ends.document.empty() && tokenizer.find(usual) >= 0) ends.document = usual;
  if (ends.prefix.empty()) ends.prefix = ends.document;
  return ends;
}

// "; it has <s>, </s>, ...", a few.
std::string special_tokens(const TokenizerJson& tokenizer) {
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
  const auto file = json_of(what);
  const auto text = read_text(file, kMostBytes);
  if (const auto kind = other_kind(text, file.string()); !kind.empty())
    throw DataError(str(
        file.string(), ": ", kind, "; expected a ", kFile,
        ". The package transformers makes one: ", conversion_of(fs::absolute(file).parent_path())));
  const auto json = parse_tokenizer_json(text, file.string());
  if (!document_token.empty() && json.find(document_token) < 0)
    throw UsageError(
        str(file.string(), ": no special token is called ", document_token, special_tokens(json)));
  const auto ends = ends_of(file, json);
  Tokenizer::About about{.name = name_of(file),
                         .hash = hash_hex(text),
                         .vocabulary = json.vocabulary(),
                         .document_token = json.find(ends.document),
                         .end_token = json.find(ends.end),
                         .prefix_token = json.find(ends.prefix)};
  if (!document_token.empty()) about.document_token = json.find(document_token);
  if (about.end_token < 0) about.end_token = about.document_token;
  return in_context([&] { return std::make_unique<BpeTokenizer>(json, std::move(about)); },
                    file.string());
}

std::vector<fs::path> tokenizer_files(const std::string& what) {
  if (what == "bytes") return {};
  const auto file = json_of(what);
  std::vector<fs::path> files{file};
  for (const auto& name : tokenizer_file_names(file.parent_path()))
    if (name != kFile) files.push_back(file.parent_path() / name);
  return files;
}

std::vector<std::string> tokenizer_file_names(const fs::path& directory) {
  constexpr const char* kTemplates = "additional_chat_templates";
  std::vector<std::string> names;
  for (const char* name : kTokenizerFiles)
    if (path_exists(directory / name)) names.emplace_back(name);
  if (directory_exists(directory / kTemplates))
    for (const auto& path : directory_entries(directory / kTemplates))
      if (path.extension() == ".jinja")
        names.push_back(str(kTemplates, "/", path.filename().string()));
  return names;
}

void copy_tokenizer_files(const std::vector<fs::path>& files, const fs::path& directory) {
  for (const auto& file : files)
    copy_tokenizer_file(
        file,
        directory / (file == files.front() ? fs::path(kFile)
                                           : file.lexically_relative(files.front().parent_path())));
}

void copy_tokenizer_file(const fs::path& from, const fs::path& to) {
  constexpr std::int64_t kMostFileBytes = std::int64_t{1} << 30;
  if (from == to) return;
  make_directories(to.parent_path());
  write_text(to, read_text(from, kMostFileBytes));
}

}  // namespace lockstep
