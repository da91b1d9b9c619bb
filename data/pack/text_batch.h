// TextBatch: a stretch of the input on its way through pack: read by one thread, turned into tokens
// by any, written by one, in the order of the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/odd_input.h"

namespace lockstep {

// Bytes that are read into, and so never zeroed.
class TextBuffer {
 public:
  const char* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }

  std::span<char> rest() { return {bytes_.get() + size_, capacity_ - size_}; }
  void grow_by(std::size_t count) { size_ += count; }  // of rest(), which were written
  void clear() { size_ = 0; }
  void reserve(std::size_t capacity);  // what is in it stays; may give back memory
  void append(std::span<const char> bytes);

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_ = 0, capacity_ = 0;
};

// A place in the input, between two batches.
struct InputPosition {
  std::int64_t file = 0, byte = 0;  // which of the files, of its text
  std::int64_t line = 1;            // of a file of lines, the next; else 1
  bool inside = false;              // a document that goes on
  // What was read of the file's text: stretches behind each other, as often as reading went on.
  struct Stretch {
    std::int64_t bytes = 0;
    std::string hash;  // XXH3-128
  };
  std::vector<Stretch> read = {};
};

struct TextBatch {
  std::int64_t number = 0;  // in order
  // Text of documents, or lines of JSON.
  struct Piece {
    std::size_t begin = 0, end = 0;   // of `text`
    std::int64_t byte = 0, line = 1;  // where it begins in its file
    std::int64_t file = 0;
    bool first = false, last = false;  // of its document
  };
  TextBuffer text;
  std::vector<Piece> pieces;
  InputPosition behind;  // all of it

  // Documents in tokens, or parts of them.
  struct Part {
    std::int64_t tokens = 0, text_bytes = 0;
    bool first = false, last = false;
  };
  std::vector<Part> parts;
  std::vector<std::uint16_t> narrow;  // the tokens: of one of the two
  std::vector<std::uint32_t> wide;
  std::vector<std::uint8_t> mask;  // 1: counts in the loss; empty, or one a token
  OddInput odd;
  std::exception_ptr error;  // in place of all that

  void clear();  // keeps the memory of a usual batch
};

inline constexpr std::size_t kBatchBytes = std::size_t{1} << 19;  // most batches, of text

}  // namespace lockstep
