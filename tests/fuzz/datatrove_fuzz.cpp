// Any index and metadata of datatrove are rejected, or match the tokens. The first two bytes of the
// input are the size of the tokens, the next one is that of the index in words. Index and metadata
// follow.
#include <algorithm>

#include "data/datatrove.h"
#include "data/document_ends.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::datatrove_fuzz {
std::string input(std::uint16_t bytes, const std::vector<std::uint64_t>& ends,
                  const std::string& metadata) {
  return raw(bytes) + static_cast<char>(ends.size()) + raw(ends) + metadata;
}

void check(std::string_view input) {
  static const MemoryFile index_file, metadata_file;
  if (input.size() < 3) return;
  const auto bytes = number_at<std::uint16_t>(input, 0);
  const auto rest = input.substr(3);
  const auto index_bytes =
      std::min<std::size_t>(std::size_t{8} * number_at<std::uint8_t>(input, 2), rest.size());
  index_file.set(rest.substr(0, index_bytes));
  metadata_file.set(rest.substr(index_bytes));
  ReadFile index(index_file.path());
  const auto format = datatrove_format(bytes, index);
  const std::int64_t tokens = bytes / format.token_bytes;
  LOCKSTEP_CHECK(tokens * format.token_bytes == bytes, "tokens of another size");
  const auto count = index.size_bytes() / 8;
  const EndsList ends(std::move(index), count, tokens, EndsList::Empty::left_out);
  std::int64_t last = 0;
  ends.for_each([&](std::int64_t end) {
    LOCKSTEP_CHECK(end > last && end <= tokens, "an end at ", end, " after ", last);
    last = end;
  });
  LOCKSTEP_CHECK(last == tokens, "the last end at ", last, " of ", tokens);
  check_datatrove_metadata(ReadFile(metadata_file.path()), format, tokens);
}

Seeds seeds() {
  return {input(200, {1, 2, 50, 99, 100}, "gpt2|2\n100\n100 T"),
          input(200, {0, 20, 20, 50}, "Unknown Tokenizer|4|4\n50\n50.0 T"), input(4, {2}, "x\n2")};
}

const Target target("datatrove", seeds, check);

}  // namespace lockstep::fuzz::datatrove_fuzz
