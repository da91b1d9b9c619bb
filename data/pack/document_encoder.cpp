#include "data/pack/document_encoder.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"
#include "data/pack/document_reader.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostKept = 4 * kBatchBytes;  // ids, or bytes of the members of a line

std::vector<std::string> names_of(const DocumentFields& fields) {
  if (!fields.prompt.empty()) return {fields.prompt, fields.response};
  return {fields.text};
}

JsonLine line_of(const DocumentFields& fields) {
  return fields.messages.empty() ? JsonLine(names_of(fields))
                                 : JsonLine(fields.messages, {"role", "content"});
}

}  // namespace

DocumentEncoder::Memory::Memory(const DocumentFields& fields)
    : words(fields.missing_bytes), line(line_of(fields)) {}

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, DocumentFields fields,
                                 std::vector<std::filesystem::path> files,
                                 std::vector<bool> is_json_lines)
    : tokenizer_(tokenizer),
      fields_(std::move(fields)),
      files_(std::move(files)),
      is_json_lines_(std::move(is_json_lines)),
      bytes_(dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr) {
  if (fields_.chat_template) fields_.chat_template->check(tokenizer_);
}

std::string DocumentEncoder::where(const TextBatch::Piece& piece, std::size_t byte) const {
  const auto file = static_cast<std::size_t>(piece.file);
  const auto line = is_json_lines_[file] ? str("line ", piece.line, ", ") : std::string();
  return str(files_[file].string(), ": ", line, "byte ",
             piece.byte + static_cast<std::int64_t>(byte));
}

// Advice for wrong files or wrong member names.
std::string DocumentEncoder::advice(const TextBatch::Piece& piece,
                                    const JsonLine::Problem& problem) const {
  if (problem.lacks_member) {
    if (!fields_.messages.empty())
      return R"(; --messages-field expects a list of {"role": ..., "content": ...})";
    return fields_.prompt.empty() ? "; select the member with --field"
                                  : "; select the members with --prompt-field and --response-field";
  }
  const auto& file = files_[static_cast<std::size_t>(piece.file)];
  if (piece.line != 1 || is_called_json_lines(file)) return "";
  const auto other = std::ranges::find_if(files_, is_called_json_lines);
  if (other == files_.end()) return "";
  auto ending = other->extension().string();
  if (ending != ".jsonl" && ending != ".ndjson")
    ending = other->stem().extension().string() + ending;
  return str("; to leave ", file.filename().string(),
             " out, select the others with a quoted pattern: '",
             (other->parent_path() / "*").string(), ending, "'");
}

template <class Act>
void DocumentEncoder::in_piece(const TextBatch::Piece& piece, const Act& act) const {
  try {
    act();
  } catch (const MissingByte& error) {
    throw DataError(str(where(piece, 0), ": ", error.what(),
                        "; --missing-bytes drop omits such bytes, as transformers does, and "
                        "--missing-bytes replace replaces their characters by U+FFFD"));
  } catch (const DataError& error) {
    throw DataError(str(where(piece, 0), ": ", error.what()));
  }
}

void DocumentEncoder::encode(TextBatch& batch, Memory& memory) const {
  for (const auto& piece : batch.pieces) {
    if (is_json_lines_[static_cast<std::size_t>(piece.file)])
      encode_line(batch, piece, memory);
    else if (bytes_)
      encode_bytes(batch, piece);
    else
      encode_text(batch, piece, {batch.text.data() + piece.begin, piece.end - piece.begin}, memory);
  }
  memory.give_back();
}

// A single document may have a gigabyte; later ones rarely do.
void DocumentEncoder::Memory::give_back() {
  if (ids.capacity() > kMostKept) std::vector<std::int32_t>().swap(ids);
  line.give_back(kMostKept);
}

// Does not use ids in between, and is as fast as memory.
void DocumentEncoder::encode_bytes(TextBatch& batch, const TextBatch::Piece& piece) const {
  const auto* text = reinterpret_cast<const unsigned char*>(batch.text.data());
  if (piece.first) batch.narrow.push_back(ByteTokenizer::kDocumentToken);
  batch.narrow.insert(batch.narrow.end(), text + piece.begin, text + piece.end);
  const auto bytes = static_cast<std::int64_t>(piece.end - piece.begin);
  batch.parts.push_back({bytes + (piece.first ? 1 : 0), bytes, piece.first, piece.last});
}

void DocumentEncoder::encode_text(TextBatch& batch, const TextBatch::Piece& piece,
                                  std::string_view text, Memory& memory) const {
  note_replaced(batch, piece, text);
  memory.ids.clear();
  if (piece.first) memory.ids.push_back(tokenizer_.about().document_token);
  in_piece(piece, [&] {
    if (fields_.plain)
      tokenizer_.encode_plain(text, memory.ids, memory.words);
    else
      tokenizer_.encode(text, memory.ids, memory.words);
  });
  note_missing(batch, piece, memory);
  batch.parts.push_back({static_cast<std::int64_t>(memory.ids.size()),
                         static_cast<std::int64_t>(text.size()), piece.first, piece.last});
  append(batch, memory);
}

void DocumentEncoder::note_missing(TextBatch& batch, const TextBatch::Piece& piece,
                                   Memory& memory) const {
  if (const auto count = std::exchange(memory.words.missing, 0); count > 0)
    batch.odd.bytes.note(where(piece, 0), count);
}

void DocumentEncoder::append(TextBatch& batch, Memory& memory) const {
  if (wide())
    batch.wide.insert(batch.wide.end(), memory.ids.begin(), memory.ids.end());
  else
    batch.narrow.insert(batch.narrow.end(), memory.ids.begin(), memory.ids.end());
}

void DocumentEncoder::note_replaced(TextBatch& batch, const TextBatch::Piece& piece,
                                    std::string_view text) const {
  if (!bytes_)
    note_invalid(text, batch.odd.text, [&](std::size_t byte) { return where(piece, byte); });
}

void DocumentEncoder::encode_line(TextBatch& batch, const TextBatch::Piece& piece,
                                  Memory& memory) const {
  std::string_view line(batch.text.data() + piece.begin, piece.end - piece.begin);
  if (piece.byte == 0 && line.starts_with(kByteOrderMark)) line.remove_prefix(3);
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  try {
    memory.line.scan(line);
  } catch (const JsonLine::Problem& problem) {
    const auto skipped = piece.end - piece.begin - line.size();
    throw DataError(
        str(where(piece, problem.byte + skipped), ": ", problem.what, advice(piece, problem)));
  }
  if (const auto count = static_cast<std::int64_t>(memory.line.replaced()); count > 0)
    batch.odd.text.note(where(piece, 0), count);
  if (const auto count = static_cast<std::int64_t>(memory.line.numbers()); count > 0)
    batch.odd.numbers.note(where(piece, 0), count);
  if (!fields_.messages.empty()) return encode_messages(batch, piece, memory);
  if (fields_.prompt.empty()) {
    const auto& text = memory.line.value(0);
    if (!text.empty()) encode_text(batch, piece, text, memory);
    return;
  }
  const std::string_view prompt = memory.line.value(0), response = memory.line.value(1);
  if (prompt.empty() && response.empty()) return;
  in_piece(piece, [&] {
    encode_turns(batch, {{prompt, false, false}, {response, false, true}}, true, memory);
  });
  note_missing(batch, piece, memory);
}

void DocumentEncoder::encode_messages(TextBatch& batch, const TextBatch::Piece& piece,
                                      Memory& memory) const {
  in_piece(piece, [&] {
    std::vector<Turn> turns;
    bool any_counts = false;
    for (std::size_t i = 0; i < memory.line.elements(); ++i) {
      const auto& name = memory.line.value(i, 0);
      const auto role = fields_.chat_template->roles.find(name);
      if (role == fields_.chat_template->roles.end())
        throw DataError(
            str("the chat template ", fields_.chat_template->name, " has no role \"", name, "\""));
      const bool counts = name == kAssistant;
      any_counts = any_counts || counts;
      turns.push_back({role->second.prefix, true, false});
      turns.push_back({content_of(*fields_.chat_template, memory.line.value(i, 1)), false, counts});
      turns.push_back({role->second.suffix, true, counts});
    }
    if (turns.empty()) return;
    if (!any_counts) ++without_target_;
    encode_turns(batch, turns, false, memory);
  });
  note_missing(batch, piece, memory);
}

void DocumentEncoder::encode_turns(TextBatch& batch, const std::vector<Turn>& turns, bool ends,
                                   Memory& memory) const {
  auto& ids = memory.ids;
  ids.assign(1, tokenizer_.about().document_token);
  batch.mask.push_back(0);
  std::int64_t text_bytes = 0;
  for (const auto& turn : turns) {
    const auto before = ids.size();
    encode_part(tokenizer_, turn.text, turn.trusted, ids, memory.words);
    batch.mask.insert(batch.mask.end(), ids.size() - before, turn.counts ? 1 : 0);
    text_bytes += static_cast<std::int64_t>(turn.text.size());
  }
  if (ends) {
    ids.push_back(tokenizer_.about().end_token);
    batch.mask.push_back(1);
  }
  batch.parts.push_back({static_cast<std::int64_t>(ids.size()), text_bytes, true, true});
  append(batch, memory);
}

}  // namespace lockstep
