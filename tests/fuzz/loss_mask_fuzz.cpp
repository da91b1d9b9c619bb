// Any loss mask is rejected, or has 0 or 1 for each token, the same for every way to read it. The
// first byte of the input is the layout and the bytes before the mask, the next two are the tokens,
// the rest is the file.
#include <algorithm>

#include "data/loss_mask.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::loss_mask_fuzz {
constexpr std::size_t kFront = 3;

std::vector<std::uint8_t> read(const LossMask& mask, std::int64_t first, std::int64_t tokens) {
  std::vector<std::uint8_t> bits(static_cast<std::size_t>(tokens));
  mask.read(bits, first);
  return bits;
}

void check_bits(const LossMask& mask, std::string_view bytes, std::int64_t tokens) {
  const auto all = must_accept([&] { return read(mask, 0, tokens); });
  for (std::size_t t = 0; t < all.size(); ++t)
    LOCKSTEP_CHECK(all[t] == (bytes[t / 8] >> t % 8 & 1), "token ", t, " is ", int{all[t]});
}

void check(std::string_view input) {
  static const MemoryFile file;
  if (input.size() < kFront) return;
  const std::int64_t tokens = number_at<std::uint16_t>(input, 1);
  const auto front = number_at<std::uint8_t>(input, 0);
  const bool is_bits = front % 2 == 0;
  file.set(input.substr(kFront));
  const LossMask mask(ReadFile(file.path()), front / 2, tokens,
                      is_bits ? LossMask::Layout::bits : LossMask::Layout::bytes);
  if (is_bits) check_bits(mask, input.substr(kFront + front / 2), tokens);
  const auto all = read(mask, 0, tokens);
  LOCKSTEP_CHECK(std::all_of(all.begin(), all.end(), [](auto bit) { return bit < 2; }), "no bit");
  for (std::int64_t first = 0; first < tokens; first += 1 + tokens / 7) {
    const auto some = read(mask, first, std::min<std::int64_t>(11, tokens - first));
    LOCKSTEP_CHECK(std::equal(some.begin(), some.end(), all.begin() + first),
                   "a window differs from the whole");
  }
}

std::string input(std::uint8_t front, std::uint16_t tokens, const std::string& mask) {
  return raw(front) + raw(tokens) + std::string(front / 2, '*') + mask;
}

Seeds seeds() {
  return {input(0, 16, "\xa5\x5a"), input(0, 19, std::string("\xff\0\x07", 3)), input(8, 3, "\x05"),
          input(1, 5, std::string("\0\1\1\0\1", 5)), input(7, 2, std::string("\1\0", 2))};
}

const Target target("loss_mask", seeds, check);

}  // namespace lockstep::fuzz::loss_mask_fuzz
