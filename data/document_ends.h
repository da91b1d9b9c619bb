// DocumentEnds lists where the documents of a shard end. An end is the index of the first token
// after a document, counted from the first token of the shard. A document that continues in the
// next shard is listed there.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/file.h"
#include "core/function_ref.h"

namespace lockstep {

class DocumentEnds {
 public:
  virtual ~DocumentEnds() = default;

  virtual const ReadFile& file() const = 0;
  virtual std::int64_t count() const = 0;
  virtual std::int64_t offset_of(std::int64_t i) const = 0;  // byte offset of end i

  // Returns end i. Throws DataError naming the byte if it lies outside the shard.
  virtual std::int64_t end(std::int64_t i) const = 0;

  // Calls visit(end) for each document in order. Skips documents without tokens if the format
  // allows them. Throws DataError naming the byte if the ends do not increase.
  virtual void for_each(FunctionRef<void(std::int64_t end)> visit) const = 0;

  // Returns the first i with end(i) > token, or count().
  std::int64_t first_after(std::int64_t token) const;
  // Calls visit(end) for the ends with first < end <= last. Throws DataError naming the byte if
  // those do not increase.
  void for_each_within(std::int64_t first, std::int64_t last,
                       FunctionRef<void(std::int64_t end)> visit) const;

 protected:
  // Reads ends.size() ends from end i on.
  virtual void read(std::int64_t i, std::span<std::int64_t> ends) const;

 private:
  // A piece of the list that starts with end `first`.
  struct Piece {
    static constexpr std::int64_t kMost = 256;
    std::array<std::int64_t, kMost> ends;
    std::int64_t first = 0, count = 0;
  };
  void read(Piece& piece, std::int64_t first, std::int64_t end) const;
  std::int64_t first_after(std::int64_t token, Piece& piece) const;
};

// EndsList reads u64[], little-endian: NAME.ends of Lockstep and NAME.ds.index of datatrove.
class EndsList final : public DocumentEnds {
 public:
  // How documents without tokens are handled.
  enum class Empty : std::uint8_t { refused, left_out };

  // Throws DataError unless the file has exactly `count` ends.
  EndsList(ReadFile file, std::int64_t count, std::int64_t shard_tokens,
           Empty empty = Empty::refused);

  const ReadFile& file() const override { return file_; }
  std::int64_t count() const override { return count_; }
  std::int64_t offset_of(std::int64_t i) const override { return 8 * i; }
  std::int64_t end(std::int64_t i) const override;
  void for_each(FunctionRef<void(std::int64_t end)> visit) const override;

 protected:
  void read(std::int64_t i, std::span<std::int64_t> ends) const override;

 private:
  std::int64_t checked(std::int64_t i, std::uint64_t value) const;

  ReadFile file_;
  std::int64_t count_, shard_tokens_;
  Empty empty_;
};

}  // namespace lockstep
