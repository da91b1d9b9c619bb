// Any index and metadata of datatrove's are refused, or agree with the tokens. The first two bytes
// of the input are the size of the tokens, the next is that of the index in words, then come index
// and metadata.
#include <algorithm>
#include <cstring>

#include "data/datatrove.h"
#include "data/document_ends.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

std::string input(std::uint16_t bytes, const std::vector<std::uint64_t>& ends,
                  const std::string& metadata) {
  std::string text(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  text.push_back(static_cast<char>(ends.size()));
  for (const auto end : ends)
    text.append(reinterpret_cast<const char*>(&end), sizeof end);
  return text + metadata;
}

}  // namespace

std::vector<std::string> seeds() {
  return {input(200, {1, 2, 50, 99, 100}, "gpt2|2\n100\n100 T"),
          input(200, {0, 20, 20, 50}, "Unknown Tokenizer|4|4\n50\n50.0 T"), input(4, {2}, "x\n2")};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;  // NOLINT(google-build-using-namespace)
  static const fuzz::MemoryFile index_file, metadata_file;
  std::uint16_t bytes = 0;
  if (size < 3) return 0;
  std::memcpy(&bytes, data, sizeof bytes);
  const auto index_bytes = std::min<std::size_t>(std::size_t{8} * data[2], size - 3);
  index_file.set(data + 3, index_bytes);
  metadata_file.set(data + 3 + index_bytes, size - 3 - index_bytes);
  try {
    ReadFile index(index_file.path());
    const auto format = datatrove_format(bytes, index);
    const std::int64_t tokens = bytes / format.token_bytes;
    LOCKSTEP_CHECK(tokens * format.token_bytes == bytes, "tokens of another size");
    const auto count = index.size_bytes() / 8;
    const EndsList ends(std::move(index), count, tokens, EndsList::Empty::left_out);
    std::int64_t last = 0;
    ends.for_each([&](std::int64_t end) {
      LOCKSTEP_CHECK(end > last && end <= tokens, "an end at ", end, " behind ", last);
      last = end;
    });
    LOCKSTEP_CHECK(last == tokens, "the last end at ", last, " of ", tokens);
    check_datatrove_metadata(ReadFile(metadata_file.path()), format, tokens);
  } catch (const DataError&) {
  }
  return 0;
}
