// Frame: the unit of data on a connection between ranks after the handshake (dist/job/handshake.h).
// A frame is a head of four little-endian 32-bit numbers (kind, peer, bytes of the tag, bytes of
// the body), the tag, and the body.
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

inline constexpr std::size_t kPieceBytes = 64 << 10;  // largest single read from a connection

using Bytes = std::vector<std::byte>;

inline constexpr std::size_t kMostTagBytes = 64;
inline constexpr std::size_t kMostMessageBytes = std::size_t{16} << 20;

enum class FrameKind : std::uint32_t {
  message = 1,  // peer: the receiver, or the sender when it arrives
  roster = 2,   // the hosts of ranks (dist/job/roster.h), sent when all have connected
  gone = 3,     // body: ranks that closed their connections
  refused = 4,  // the connection is rejected; peer: exit code; body: reason
  beat = 5,     // from a rank: its activity; to a rank: rank 0 is alive
  goodbye = 6,  // this rank ends without an error
  failed = 7,   // this rank ends with an error; peer: its exit code; body: the error
  verdict = 8,  // the job is aborted; peer: exit code; body: reason
};

inline constexpr std::int32_t kEveryRank = -1;  // receiver of a message: all ranks

struct Frame {
  FrameKind kind = FrameKind::message;
  std::int32_t peer = 0;
  std::string tag{};
  Bytes body{};
};

Bytes as_bytes(std::string_view text);
std::string as_text(std::span<const std::byte> bytes);

void append(Bytes& out, const Frame& frame);

// FrameReader splits a stream of bytes into frames. It holds no more memory than the bytes that
// arrived. It throws DataError as soon as a head has an unknown kind, or a tag or body that exceeds
// its limit.
class FrameReader {
 public:
  void add(std::span<const std::byte> bytes);
  std::optional<Frame> next();

 private:
  Bytes bytes_;
  std::size_t begin_ = 0;
};

// BodyWriter and BodyReader encode numbers and texts of a body, little-endian. The reader throws
// DataError if the body is too short.
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
  BodyWriter& text(std::string_view text);  // size as 32 bits, then the bytes
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
