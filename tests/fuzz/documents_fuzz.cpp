// Any file that pack reads is rejected, or becomes documents of its text, with a loss mask. The
// first byte of the input chooses the format: text, with or without a separator, or lines of JSON
// with a text, a prompt and its response, or a conversation. The next byte chooses the tokenizer;
// the rest is the file.
#include <map>

#include "core/json.h"
#include "data/pack/document_encoder.h"
#include "data/pack/document_reader.h"
#include "data/tokenizer/unicode.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::documents_fuzz {
constexpr std::string_view kTemplate =
    R"({"roles": {"user": {"prefix": "<|im_start|>u\n", "suffix": "<|im_end|>\n"},)"
    R"("assistant": {"prefix": "<|im_start|>a\n", "suffix": "<|im_end|>\n"}}})";

DocumentFields fields_of(char how, const Tokenizer& tokenizer) {
  DocumentFields fields;
  if (how == 'p') {
    fields.prompt = std::string("p");
    fields.response = std::string("r.t");
  }
  if (how == 'm') {
    fields.messages = std::string("m");
    fields.chat_template =
        ChatTemplate::parse(tokenizer.about().name == "bytes"
                                ? R"({"roles": {"user": {"prefix": "U: ", "suffix": "\n"},)"
                                  R"("assistant": {"prefix": "A: ", "suffix": "\n"}}})"
                                : kTemplate,
                            "template");
  }
  return fields;
}

// One tokenizer, one way to read.
struct Way {
  char how;
  const Tokenizer& tokenizer;
  std::string_view separator() const { return how == 's' ? "\n\n" : ""; }
  bool is_lines() const { return how != 't' && how != 's'; }
  bool masked() const { return how == 'p' || how == 'm'; }
};

// The pieces have all of the text except its separators.
void check_pieces(const TextBatch& batch, const Way& way, std::string_view text) {
  const std::string_view separator = way.is_lines() ? "\n" : way.separator();
  std::size_t behind = 0;
  for (const auto& piece : batch.pieces) {
    const std::string_view is(batch.text.data() + piece.begin, piece.end - piece.begin);
    const auto at = static_cast<std::size_t>(piece.byte);
    LOCKSTEP_CHECK(!is.empty() && text.substr(at, is.size()) == is, "a piece at byte ", at);
    LOCKSTEP_CHECK(separator.empty() || is.find(separator) == std::string_view::npos,
                   "a separator within a document");
    for (std::size_t i = behind; i < at; ++i)
      LOCKSTEP_CHECK(!separator.empty() && separator.find(text[i]) != std::string_view::npos,
                     "byte ", i, " is lost");
    behind = at + is.size();
  }
}

void check_tokens(const TextBatch& batch, const Way& way) {
  std::int64_t tokens = 0;
  for (const auto& part : batch.parts) {
    LOCKSTEP_CHECK(part.first && part.last && part.tokens > 0, "a document in parts");
    LOCKSTEP_CHECK(
        batch.narrow[static_cast<std::size_t>(tokens)] == way.tokenizer.about().document_token,
        "no document token in front");
    tokens += part.tokens;
  }
  LOCKSTEP_CHECK(tokens == std::ssize(batch.narrow) && batch.wide.empty(), tokens, " tokens");
  LOCKSTEP_CHECK(batch.mask.size() == (way.masked() ? batch.narrow.size() : 0), "a mask of ",
                 batch.mask.size());
  for (const auto id : batch.narrow)
    LOCKSTEP_CHECK(id < way.tokenizer.about().vocabulary, "id ", id);
}

// The tokens of a conversation decode to its text.
void check_conversation(const TextBatch& batch, const Way& way, std::string_view line) {
  const auto fields = fields_of('m', way.tokenizer);
  Json json;
  try {
    json = Json::parse(line, "line", 256);
  } catch (const DataError&) {
    return;  // a repeated key, half a surrogate pair, or a number that no double has
  }
  std::string all, counts;
  for (const auto& message : json.at("m").as_array()) {
    const auto& role = fields.chat_template->roles.at(message.at("role").as_string());
    const auto said = message.at("content").as_string() + role.suffix;
    all += role.prefix + said;
    if (message.at("role").as_string() == kAssistant) counts += said;
  }
  if (batch.narrow.empty()) return;
  std::vector<std::int32_t> ids(batch.narrow.begin() + 1, batch.narrow.end()), counted;
  for (std::size_t i = 1; i < batch.mask.size(); ++i)
    if (batch.mask[i] != 0) counted.push_back(batch.narrow[i]);
  const auto same = [&](const auto& tokens, const std::string& text) {
    const auto decoded = way.tokenizer.decode(tokens, Tokenizer::Specials::named);
    return normalized(decoded, NormalForm::nfc) == normalized(text, NormalForm::nfc);
  };
  LOCKSTEP_CHECK(same(ids, all), "another conversation");
  LOCKSTEP_CHECK(same(counted, counts), "another part of it counts");
}

void check(std::string_view input) {
  static const MemoryFile file;
  static const ByteTokenizer bytes;
  static const auto bpe = open_tokenizer(LOCKSTEP_TOKENIZERS "/qwen3");
  static TextBatch batch;
  if (input.size() < 2) return;
  const bool is_known = std::string_view("tspm").find(input[0]) != std::string_view::npos;
  const Way way{is_known ? input[0] : 'j',
                input[1] == 'b' ? static_cast<const Tokenizer&>(bytes) : *bpe};
  const auto text = input.substr(2);
  if (text.starts_with("\x1f\x8b") || text.starts_with("\x28\xb5\x2f\xfd")) return;  // compressed
  file.set(text);
  Progress progress("fuzz", 0);
  DocumentReader reader({{file.path()}, std::string(way.separator()), way.is_lines()},
                        way.tokenizer, {}, progress);
  const DocumentEncoder encoder(way.tokenizer, fields_of(way.how, way.tokenizer), {file.path()},
                                {way.is_lines()});
  static std::map<std::string, DocumentEncoder::Memory> memories;
  auto& memory =
      memories
          .try_emplace({way.how, input[1] == 'b' ? 'b' : 'x'}, fields_of(way.how, way.tokenizer))
          .first->second;
  batch.clear();
  reader.fill(batch);
  check_pieces(batch, way, text);
  encoder.encode(batch, memory);
  check_tokens(batch, way);
  if (way.how == 'm' && batch.pieces.size() == 1 && batch.parts.size() == 1)
    check_conversation(batch, way, text.substr(text.starts_with("\xef\xbb\xbf") ? 3 : 0));
}

Seeds seeds() {
  return {"tbOne text.\n\nIt's all.\xff",
          "sxOne.\n\nTwo\xc3\xa9\n\n\n\n3.\n",
          "jb{\"text\": \"a\\u00e9\"}\n\n{\"x\": [1], \"text\": \"\"}\r\n",
          "jx\xef\xbb\xbf{\"text\": \"<|im_end|>\\ud800 b\"}",
          "px{\"p\": \"Q?\", \"r\": {\"t\": \"A<|im_end|>\"}}\n{\"p\":\"\",\"r\":{\"t\":\"x\"}}\n",
          R"(mb{"m": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})",
          "mx{\"m\": [{\"role\": \"assistant\", \"content\": \"e\\u0301<|im_end|><think>\"}]}"};
}

const Target target("documents", seeds, check);

}  // namespace lockstep::fuzz::documents_fuzz
