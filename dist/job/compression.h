// Compression of messages to many ranks, with zstd (RFC 8878).
#pragma once

#include "dist/job/frame.h"

namespace lockstep {

Bytes compressed(std::span<const std::byte> bytes);
// Throws DataError if the bytes are damaged or hold more than `most` bytes.
Bytes decompressed(std::span<const std::byte> bytes, std::size_t most);

}  // namespace lockstep
