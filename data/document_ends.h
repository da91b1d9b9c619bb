// DocumentEnds: the list beside a shard of where its documents end: u64[], little-endian, in tokens
// from the shard's first, each the first token behind a document, rising. A document that goes on
// in the next shard is listed there.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/file.h"
#include "core/function_ref.h"

namespace lockstep {

class DocumentEnds {
 public:
  // Throws DataError when the file does not hold exactly `count` ends.
  DocumentEnds(const std::filesystem::path& path, std::int64_t count, std::int64_t shard_tokens);

  const ReadFile& file() const { return file_; }
  std::int64_t count() const { return count_; }

  // End i. Throws DataError, naming the byte, when it lies outside the shard.
  std::int64_t end(std::int64_t i) const;

  // Calls visit(end) for each in order. Throws DataError, naming the byte, where they do not rise.
  void for_each(FunctionRef<void(std::int64_t end)> visit) const;

  // The first i with end(i) > token; count() if there is none.
  std::int64_t first_after(std::int64_t token) const;

 private:
  std::int64_t checked(std::int64_t i, std::uint64_t value) const;

  ReadFile file_;
  std::int64_t count_, shard_tokens_;
};

}  // namespace lockstep
