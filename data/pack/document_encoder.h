// DocumentEncoder: what documents become in a dataset: the tokenizer's document token and the
// tokens of the text; or a prompt and its response, or a conversation, with a mask of what counts
// in the loss.
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

// Which members of a line of JSON are read: `text`, or prompt and response, or messages; and how.
struct DocumentFields {
  std::string text = "text";
  std::string prompt, response;
  std::string messages;  // a list of {"role": ..., "content": ...}
  std::optional<ChatTemplate> chat_template = std::nullopt;  // of messages
  // Names of special tokens in text are text like any other, as in prompts, responses and messages.
  bool plain = false;
  MissingBytes missing_bytes = MissingBytes::refuse;

  bool masked() const { return !prompt.empty() || !messages.empty(); }
};

class DocumentEncoder {
 public:
  // `files`: their names, for errors. Throws DataError where the tokenizer lacks what is needed.
  DocumentEncoder(const Tokenizer& tokenizer, DocumentFields fields,
                  std::vector<std::filesystem::path> files, std::vector<bool> is_json_lines);

  // What a thread keeps from call to call.
  struct Memory {
    explicit Memory(const DocumentFields& fields);
    Tokenizer::Memory words;
    std::vector<std::int32_t> ids;
    JsonLine line;

    void give_back();  // what only a very long document needs
  };
  Memory memory() const { return Memory(fields_); }

  // Makes tokens of the batch's pieces. Throws DataError naming file, line and byte.
  void encode(TextBatch& batch, Memory& memory) const;

  // Conversations in which the assistant says nothing, so that nothing of them is learnt.
  std::int64_t without_target() const { return without_target_; }

  bool wide() const { return tokenizer_.about().vocabulary > 65536; }  // u32

 private:
  struct Turn {
    std::string_view text;
    bool trusted = false;  // names of special tokens are these tokens
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
  // act(); what a DataError says of it gets the place of the piece in front.
  template <class Act>
  void in_piece(const TextBatch::Piece& piece, const Act& act) const;
  std::string where(const TextBatch::Piece& piece, std::size_t byte) const;
  std::string advice(const TextBatch::Piece& piece, const JsonLine::Problem& problem) const;

  const Tokenizer& tokenizer_;
  DocumentFields fields_;
  std::vector<std::filesystem::path> files_;
  std::vector<bool> is_json_lines_;
  bool bytes_;  // the tokenizer is bytes
  mutable std::atomic<std::int64_t> without_target_{0};
};

}  // namespace lockstep
