#include "data/tokenizer/tokenizer_files.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "data/hub.h"
#include "data/tokenizer/rank_file.h"
#include "data/tokenizer/tokenizer_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostTokenizerFileBytes = std::int64_t{1} << 30;
constexpr int kDepth = 16;

// Returns the command that makes a tokenizer.json from the files in a directory.
std::string conversion_of(const fs::path& directory) {
  return str("AutoTokenizer.from_pretrained(\"", directory.string(), "\").save_pretrained(\"",
             directory.string(), "\")");
}

// Whether `text` starts as a protobuf whose first field (1, with a length) is the piece of id 0:
// its text (1, with a length) and its score (2, of four bytes) or its kind (3, a number).
bool is_sentencepiece(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? int{static_cast<unsigned char>(text[i])} : 0;
  };
  constexpr int kField = 10;  // number 1, with a length; of a piece, and of the text in it
  constexpr int kScore = 0x15, kKind = 0x18;
  const auto next = byte(4 + static_cast<std::size_t>(byte(3)));
  return byte(0) == kField && byte(2) == kField && byte(3) > 0 && byte(3) + 2 <= byte(1) &&
         (next == kScore || next == kKind);
}

std::size_t index_of(const std::string& name) {
  return static_cast<std::size_t>(std::ranges::find(kTokenizers, name) - std::begin(kTokenizers));
}

// Parses a tokenizer.json or a tekken.json.
Json parsed(std::string_view text, const std::string& where) {
  constexpr const char* kNone = "not a tokenizer.json, tekken.json or rank file";
  auto json = in_context([&] { return Json::parse(text, kNone, kDepth); }, where);
  if (!is_tekken(json) && (!json.is_object() || json.find("model") == nullptr))
    throw DataError(str(where, ": ", kNone,
                        "; expected a JSON object with \"model\", or with the list ", "\"vocab\""));
  return json;
}

// Returns the name in kTokenizers for a copy of a tokenizer file: its own name if it is one of
// them, else by its content.
std::string kept_name(const fs::path& file) {
  auto name = file.filename().string();
  if (index_of(name) < std::size(kTokenizers)) return name;
  const auto text = read_text(file, kMostTokenizerFileBytes);
  if (is_rank_file(text)) return "tokenizer.model";
  return is_tekken(parsed(text, file.string())) ? "tekken.json" : "tokenizer.json";
}

}  // namespace

std::optional<fs::path> tokenizer_in(const fs::path& directory) {
  for (const char* name : kTokenizers)
    if (path_exists(directory / name)) return directory / name;
  return std::nullopt;
}

fs::path tokenizer_file(const std::string& what) {
  fs::path path = what;
  if (directory_exists(path)) {
    if (auto file = tokenizer_in(path)) return *file;
    const bool has_vocabulary =
        path_exists(path / "vocab.json") && path_exists(path / "merges.txt");
    throw DataError(str(path.string(), ": has no tokenizer; expected tokenizer.json, tekken.json, ",
                        "qwen.tiktoken or tokenizer.model",
                        has_vocabulary ? str(". The package transformers makes a tokenizer.json "
                                             "from its vocab.json, merges.txt and config.json: ",
                                             conversion_of(path))
                                       : ""));
  }
  if (!path_exists(path)) {
    const auto advice = download_advice(what);
    throw DataError(
        str(what, ": no such tokenizer; expected bytes, a tokenizer file, or a directory with one",
            advice.empty() ? "" : ". ", advice));
  }
  return path;
}

BpeDefinition parse_tokenizer(std::string_view text, const std::string& where) {
  if (is_sentencepiece(text))
    throw DataError(
        str(where, ": is a SentencePiece model; expected a tokenizer.json. Copy it alone to ",
            "DIR/tokenizer.model and convert it there, with the packages transformers, ",
            "sentencepiece and protobuf: ", conversion_of("DIR")));
  if (is_rank_file(text)) return parse_rank_file(text, where);
  const Json json = parsed(text, where);
  return is_tekken(json) ? parse_tekken(json, where) : parse_tokenizer_json(json, where);
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

std::vector<TokenizerFile> tokenizer_files(const std::string& what) {
  if (what == "bytes") return {};
  const auto file = tokenizer_file(what);
  std::vector<TokenizerFile> files{{file, kept_name(file)}};
  const auto index = index_of(files.front().name);
  for (const auto& name : tokenizer_file_names(file.parent_path()))
    if (index_of(name) > index) files.push_back({file.parent_path() / name, name});
  return files;
}

void copy_tokenizer_files(const std::vector<TokenizerFile>& files, const fs::path& directory) {
  for (const auto& [path, name] : files)
    copy_tokenizer_file(path, directory / name);
}

void copy_tokenizer_file(const fs::path& from, const fs::path& to) {
  if (from == to) return;
  make_directories(to.parent_path());
  write_text(to, read_text(from, kMostTokenizerFileBytes));
}

}  // namespace lockstep
