#include "dist/job/frame.h"

#include <bit>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr std::size_t kHeadBytes = 16;

}  // namespace

Bytes as_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void append(Bytes& out, const Frame& frame) {
  LOCKSTEP_CHECK(frame.tag.size() <= kMostTagBytes, "expected a tag of at most ", kMostTagBytes,
                 " bytes, got ", frame.tag.size(), ": ", frame.tag);
  LOCKSTEP_CHECK(frame.body.size() <= kMostMessageBytes, "expected a message of at most ",
                 kMostMessageBytes, " bytes, got ", frame.body.size(), " with the tag ", frame.tag);
  const auto head = BodyWriter()
                        .number(static_cast<std::uint32_t>(frame.kind))
                        .number(frame.peer)
                        .number(static_cast<std::uint32_t>(frame.tag.size()))
                        .number(static_cast<std::uint32_t>(frame.body.size()))
                        .take();
  const auto tag = std::as_bytes(std::span(frame.tag));
  out.reserve(out.size() + head.size() + tag.size() + frame.body.size());
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), tag.begin(), tag.end());
  out.insert(out.end(), frame.body.begin(), frame.body.end());
}

void FrameReader::add(std::span<const std::byte> bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

std::optional<Frame> FrameReader::next() {
  const auto here = std::span<const std::byte>(bytes_).subspan(begin_);
  if (here.size() < kHeadBytes) return std::nullopt;
  BodyReader head(here);
  const auto kind = head.number<std::uint32_t>();
  const auto peer = head.number<std::int32_t>();
  const std::size_t tag_bytes = head.number<std::uint32_t>();
  const std::size_t body_bytes = head.number<std::uint32_t>();
  if (kind < static_cast<std::uint32_t>(FrameKind::message) ||
      kind > static_cast<std::uint32_t>(FrameKind::verdict))
    throw DataError(str("a frame has the unknown kind ", kind));
  if (tag_bytes > kMostTagBytes || body_bytes > kMostMessageBytes)
    throw DataError(str("a frame has a tag of ", tag_bytes, " bytes and a body of ", body_bytes,
                        "; expected at most ", kMostTagBytes, " and ", kMostMessageBytes));
  if (here.size() < kHeadBytes + tag_bytes + body_bytes) return std::nullopt;
  const auto tag = here.subspan(kHeadBytes, tag_bytes);
  const auto body = here.subspan(kHeadBytes + tag_bytes, body_bytes);
  begin_ += kHeadBytes + tag_bytes + body_bytes;
  return Frame{static_cast<FrameKind>(kind), peer, as_text(tag), {body.begin(), body.end()}};
}

BodyWriter& BodyWriter::text(std::string_view text) {
  number(static_cast<std::uint32_t>(text.size()));
  const auto bytes = std::as_bytes(std::span(text));
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

std::span<const std::byte> BodyReader::take(std::size_t count) {
  if (count > bytes_.size())
    throw DataError(str("the body of a frame is ", count - bytes_.size(), " bytes too short"));
  const auto taken = bytes_.first(count);
  bytes_ = bytes_.subspan(count);
  return taken;
}

}  // namespace lockstep
