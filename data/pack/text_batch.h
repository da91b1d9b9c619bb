// TextBatch is a piece of the input on its way through pack. One thread reads it, any thread
// encodes it, and one thread writes it, in the order of the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/input_defects.h"

namespace lockstep {

// TextBuffer is a buffer for reading that is never zeroed.
class TextBuffer {
 public:
  const char* data() const { return bytes_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }

  std::span<char> rest() { return {bytes_.get() + size_, capacity_ - size_}; }
  void grow_by(std::size_t count) { size_ += count; }  // after writing bytes to rest()
  void clear() { size_ = 0; }
  void reserve(std::size_t capacity);  // keeps the content; may free memory
  void append(std::span<const char> bytes);

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_ = 0, capacity_ = 0;
};

// InputPosition is a place in the input between two batches.
struct InputPosition {
  std::int64_t file = 0, byte = 0;  // index of the file; byte of its text
  std::int64_t line = 1;            // number of the next line, for a file of lines; else 1
  bool inside = false;              // true: inside a document
  // The text that was read of the file, as consecutive stretches, one for each time that reading
  // was resumed.
  struct Stretch {
    std::int64_t bytes = 0;
    std::string hash;  // XXH3-128
  };
  std::vector<Stretch> read = {};
};

struct TextBatch {
  std::int64_t number = 0;  // number in the order of the input
  // Text of a document, or a line of JSON.
  struct Piece {
    std::size_t begin = 0, end = 0;   // range in `text`
    std::int64_t byte = 0, line = 1;  // where it starts in its file
    std::int64_t file = 0;
    bool first = false, last = false;  // of its document: the first or last piece
  };
  TextBuffer text;
  std::vector<Piece> pieces;
  InputPosition behind;  // position after the batch

  // Part is a document in tokens, or a part of one.
  struct Part {
    std::int64_t tokens = 0, text_bytes = 0;
    bool first = false, last = false;
  };
  std::vector<Part> parts;
  std::vector<std::uint16_t> narrow;  // the tokens; only one of the two is used
  std::vector<std::uint32_t> wide;
  std::vector<std::uint8_t> mask;  // 1: counts in the loss; empty, or one a token
  InputDefects odd;
  std::exception_ptr error;  // set instead of the results

  void clear();  // keeps the memory of a typical batch
};

inline constexpr std::size_t kBatchBytes = std::size_t{1}
                                           << 19;  // typical bytes of text in a batch

}  // namespace lockstep
