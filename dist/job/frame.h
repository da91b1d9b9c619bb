// Frames: what travels over a connection between ranks once both ends have proved who they are.
// Each is a head of four little-endian 32-bit numbers (kind, peer, bytes of the tag, bytes of the
// body), the tag, the body.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace lockstep {

inline constexpr std::size_t kPieceBytes = 64 << 10;  // that are read from a connection at once

using Bytes = std::vector<std::byte>;

inline constexpr std::size_t kMostTagBytes = 64;
inline constexpr std::size_t kMostMessageBytes = std::size_t{16} << 20;

enum class FrameKind : std::uint32_t {
  message = 1,  // peer: to whom, or when it arrives from whom
  roster = 2,   // who the ranks are: they are all here
  gone = 3,     // peer has closed its connection
  refused = 4,  // peer: the exit code that fits; body: why
  beat = 5,     // from a rank: what it does; to a rank: rank 0 is there
  goodbye = 6,  // this rank ends, all is well
  failed = 7,   // this rank ends; peer: its exit code; body: its error
  verdict = 8,  // end; peer: with which exit code; body: why
};

struct Frame {
  FrameKind kind = FrameKind::message;
  std::int32_t peer = 0;
  std::string tag{};
  Bytes body{};
};

Bytes as_bytes(std::string_view text);
std::string as_text(std::span<const std::byte> bytes);

void append(Bytes& out, const Frame& frame);

// Cuts a stream of bytes into frames. It never holds more than what came, and refuses a frame as
// soon as its head is there: an unknown kind, a tag or a body over the limit are a DataError.
class FrameReader {
 public:
  void add(std::span<const std::byte> bytes);
  std::optional<Frame> next();

 private:
  Bytes bytes_;
  std::size_t begin_ = 0;
};

// Numbers and texts in a body, little-endian. A reader throws DataError where the body ends too
// soon.
class BodyWriter {
 public:
  template <class Number>
  BodyWriter& number(Number value) {
    static_assert(std::is_integral_v<Number>);
    const auto at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
    return *this;
  }
  BodyWriter& text(std::string_view text);  // its size as 32 bits, then it
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
};

class BodyReader {
 public:
  explicit BodyReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class Number>
  Number number() {
    Number value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return as_text(take(number<std::uint32_t>())); }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> take(std::size_t count);
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep
