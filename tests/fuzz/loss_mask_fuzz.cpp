// Any loss mask is refused, or says 0 or 1 of each token, the same however it is read. The first
// byte of the input is the layout and the bytes in front of the mask, the next two are the tokens,
// the rest is the file.
#include <algorithm>
#include <cstring>

#include "data/loss_mask.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr std::size_t kFront = 3;

// Not a DataError: bits that were accepted can be read.
void check_bits(const LossMask& mask, std::span<const std::uint8_t> bytes, std::int64_t tokens) {
  std::vector<std::uint8_t> all(static_cast<std::size_t>(tokens));
  try {
    mask.read(all, 0);
  } catch (const DataError& error) {
    LOCKSTEP_FAIL(error.what());
  }
  for (std::size_t t = 0; t < all.size(); ++t)
    LOCKSTEP_CHECK(all[t] == (bytes[t / 8] >> t % 8 & 1), "token ", t, " is ", int{all[t]});
}

void check(const LossMask& mask, std::int64_t tokens) {
  std::vector<std::uint8_t> all(static_cast<std::size_t>(tokens));
  mask.read(all, 0);
  LOCKSTEP_CHECK(std::all_of(all.begin(), all.end(), [](auto bit) { return bit < 2; }), "no bit");
  for (std::int64_t first = 0; first < tokens; first += 1 + tokens / 7) {
    std::vector<std::uint8_t> some(
        static_cast<std::size_t>(std::min<std::int64_t>(11, tokens - first)));
    mask.read(some, first);
    LOCKSTEP_CHECK(std::equal(some.begin(), some.end(), all.begin() + first),
                   "a window differs from the whole");
  }
}

std::string input(std::uint8_t front, std::uint16_t tokens, const std::string& mask) {
  std::string text(1, static_cast<char>(front));
  text.append(reinterpret_cast<const char*>(&tokens), sizeof tokens);
  return text + std::string(front / 2, '*') + mask;
}

}  // namespace

std::vector<std::string> seeds() {
  return {input(0, 16, "\xa5\x5a"), input(0, 19, std::string("\xff\0\x07", 3)), input(8, 3, "\x05"),
          input(1, 5, std::string("\0\1\1\0\1", 5)), input(7, 2, std::string("\1\0", 2))};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;  // NOLINT(google-build-using-namespace)
  static const fuzz::MemoryFile file;
  std::uint16_t tokens = 0;
  if (size < fuzz::kFront) return 0;
  std::memcpy(&tokens, data + 1, sizeof tokens);
  file.set(data + fuzz::kFront, size - fuzz::kFront);
  const std::size_t offset = data[0] / 2;
  const bool is_bits = data[0] % 2 == 0;
  try {
    const LossMask mask(ReadFile(file.path()), static_cast<std::int64_t>(offset), tokens,
                        is_bits ? LossMask::Layout::bits : LossMask::Layout::bytes);
    if (is_bits)
      fuzz::check_bits(mask, std::span(data, size).subspan(fuzz::kFront + offset), tokens);
    fuzz::check(mask, tokens);
  } catch (const DataError&) {
  }
  return 0;
}
