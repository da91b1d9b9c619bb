#include "data/loss_mask.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {

LossMask::LossMask(ReadFile file, std::int64_t offset, std::int64_t tokens, Layout layout)
    : file_(std::move(file)), offset_(offset), tokens_(tokens), layout_(layout) {
  const auto bytes = layout == Layout::bits ? (tokens + 7) / 8 : tokens;
  if (file_.size_bytes() - offset != bytes)
    file_.fail(std::min(file_.size_bytes(), offset + bytes),
               str("expected a loss mask of ", bytes, " bytes for ", tokens, " tokens, found ",
                   file_.size_bytes() - offset));
  if (layout == Layout::bytes || tokens % 8 == 0) return;
  std::uint8_t last = 0;
  file_.read(std::as_writable_bytes(std::span(&last, 1)), offset + bytes - 1);
  if (last >> (tokens % 8) != 0)
    file_.fail(offset + bytes - 1, str("the loss mask has bits set after its ", tokens, " tokens"));
}

void LossMask::read(std::span<std::uint8_t> out, std::int64_t first) const {
  LOCKSTEP_CHECK(0 <= first && first <= tokens_ - static_cast<std::int64_t>(out.size()),
                 "the mask of tokens ", first, "+", out.size(), " of ", tokens_);
  if (layout_ == Layout::bits) return read_bits(out, first);
  file_.read(std::as_writable_bytes(out), offset_ + first);
  const auto bad = std::find_if(out.begin(), out.end(), [](auto byte) { return byte > 1; });
  if (bad != out.end())
    file_.fail(offset_ + first + (bad - out.begin()),
               str("expected 0 or 1 in the loss mask, found ", int{*bad}));
}

void LossMask::read_bits(std::span<std::uint8_t> out, std::int64_t first) const {
  std::array<std::uint8_t, 4096> block{};
  while (!out.empty()) {
    const auto skipped = static_cast<std::size_t>(first % 8);
    const auto count = std::min(out.size(), 8 * block.size() - skipped);
    const auto bytes = std::span(block).first((skipped + count + 7) / 8);
    file_.read(std::as_writable_bytes(bytes), offset_ + first / 8);
    for (std::size_t i = 0; i < count; ++i)
      out[i] = block[(skipped + i) / 8] >> ((skipped + i) % 8) & 1;
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

}  // namespace lockstep
