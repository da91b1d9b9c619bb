// DocumentEncoder turns documents into tokens: the document token of the tokenizer and the tokens
// of the text. Prompts with responses and conversations also get a mask of the tokens that count in
// the loss.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/pack/json_line.h"
#include "data/pack/text_batch.h"
#include "data/tokenizer/chat_template.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

// Names of the members of a JSON line to read: `text`, or prompt and response, or messages; and how
// to read them.
struct DocumentFields {
  std::string text = "text";
  std::string prompt, response;
  std::string messages;  // member with a list of {"role": ..., "content": ...}
  std::optional<ChatTemplate> chat_template = std::nullopt;  // for messages
  // Names of special tokens in text are encoded as plain text, as in prompts, responses and
  // messages.
  bool plain = false;
  MissingBytes missing_bytes = MissingBytes::refuse;

  bool masked() const { return !prompt.empty() || !messages.empty(); }
};

class DocumentEncoder {
 public:
  // `files`: names for errors. Throws DataError if the tokenizer lacks a required token.
  DocumentEncoder(const Tokenizer& tokenizer, DocumentFields fields,
                  std::vector<std::filesystem::path> files, std::vector<bool> is_json_lines);

  // State that a thread keeps between calls.
  struct Memory {
    explicit Memory(const DocumentFields& fields);
    Tokenizer::Memory words;
    std::vector<std::int32_t> ids;
    JsonLine line;

    void give_back();  // frees memory that only a very long document needs
  };
  Memory memory() const { return Memory(fields_); }

  // Encodes the pieces of the batch. Throws DataError naming file, line and byte.
  void encode(TextBatch& batch, Memory& memory) const;

  // Number of conversations without text of the assistant, which contribute nothing to the loss.
  std::int64_t without_target() const { return without_target_; }

  bool wide() const { return tokenizer_.about().vocabulary > 65536; }  // tokens need u32

 private:
  struct Turn {
    std::string_view text;
    bool trusted = false;  // names of special tokens become these tokens
    bool counts = false;
  };
  void encode_text(TextBatch& batch, const TextBatch::Piece& piece, std::string_view text,
                   Memory& memory) const;
  void encode_bytes(TextBatch& batch, const TextBatch::Piece& piece) const;
  void encode_line(TextBatch& batch, const TextBatch::Piece& piece, Memory& memory) const;
  void encode_messages(TextBatch& batch, const TextBatch::Piece& piece, Memory& memory) const;
  void encode_turns(TextBatch& batch, const std::vector<Turn>& turns, bool ends,
                    Memory& memory) const;
  void note_replaced(TextBatch& batch, const TextBatch::Piece& piece, std::string_view text) const;
  void note_missing(TextBatch& batch, const TextBatch::Piece& piece, Memory& memory) const;
  void append(TextBatch& batch, Memory& memory) const;
  // Runs act() and puts the place of the piece before the text of a DataError.
  template <class Act>
  void in_piece(const TextBatch::Piece& piece, const Act& act) const;
  std::string where(const TextBatch::Piece& piece, std::size_t byte) const;
  std::string advice(const TextBatch::Piece& piece, const JsonLine::Problem& problem) const;

  const Tokenizer& tokenizer_;
  DocumentFields fields_;
  std::vector<std::filesystem::path> files_;
  std::vector<bool> is_json_lines_;
  bool bytes_;  // true: the tokenizer is `bytes`
  mutable std::atomic<std::int64_t> without_target_{0};
};

}  // namespace lockstep
