// DocumentEnds: where the documents of a shard end, each the first token behind one, counted from
// the shard's first token. A document that goes on in the next shard is listed there.
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
  virtual std::int64_t offset_of(std::int64_t i) const = 0;  // in bytes, of end i

  // End i. Throws DataError, naming the byte, when it lies outside the shard.
  virtual std::int64_t end(std::int64_t i) const = 0;

  // Calls visit(end) for each document in order; those without tokens are left out where others
  // write them. Throws DataError, naming the byte, where the ends do not rise.
  virtual void for_each(FunctionRef<void(std::int64_t end)> visit) const = 0;

  // The first i with end(i) > token; count() if there is none.
  std::int64_t first_after(std::int64_t token) const;
  // Calls visit(end) for the ends with first < end <= last. Throws DataError, naming the byte,
  // where those do not rise.
  void for_each_within(std::int64_t first, std::int64_t last,
                       FunctionRef<void(std::int64_t end)> visit) const;

 protected:
  // Ends from i on: as many as `ends` holds.
  virtual void read(std::int64_t i, std::span<std::int64_t> ends) const;

 private:
  // Some ends, which begin with end `first`.
  struct Piece {
    static constexpr std::int64_t kMost = 256;
    std::array<std::int64_t, kMost> ends;
    std::int64_t first = 0, count = 0;
  };
  void read(Piece& piece, std::int64_t first, std::int64_t end) const;
  std::int64_t first_after(std::int64_t token, Piece& piece) const;
};

// u64[], little-endian: Lockstep's NAME.ends and datatrove's NAME.ds.index.
class EndsList final : public DocumentEnds {
 public:
  enum class Empty : std::uint8_t { refused, left_out };  // of documents without tokens

  // Throws DataError when the file does not hold exactly `count` ends.
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
