#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "data/file_magic.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr int kHeaderWords = kShardHeaderBytes / 4;
constexpr std::string_view kLlmqMagic = "BIN.TOK\n";
constexpr std::int64_t kPastInt32 = std::int64_t{1} << 31;

TokenFormat gpt2_format() {
  return {"llm.c GPT-2", kShardHeaderBytes, 2, kGpt2Vocabulary, Boundary::front, kGpt2EndOfText};
}
TokenFormat llama3_format() {
  return {"llm.c Llama 3",   kShardHeaderBytes, 4,
          kLlama3Vocabulary, Boundary::front,   kLlama3BeginOfText};
}
TokenFormat nanogpt_format() {
  return {"nanoGPT", 0, 2, 0, Boundary::behind, kGpt2EndOfText};
}

// The vocabulary of LLMQ leaves out added tokens, such as the one after each document, so it is not
// a bound.
TokenFormat llmq_format() {
  return {"LLMQ", kShardHeaderBytes, 4, 0, Boundary::none, -1, /*is_signed=*/true};
}

using HeaderWords = std::array<std::int32_t, kHeaderWords>;

// A header has zeros after its first words. Tokens would not repeat the same id 506 times.
bool looks_like_a_header(const HeaderWords& header) {
  return std::all_of(header.begin() + 3, header.end(), [](auto word) { return word == 0; });
}

std::string_view bytes_of(const HeaderWords& header) {
  return {reinterpret_cast<const char*>(header.data()), kShardHeaderBytes};
}

void check_no_foreign_format(const ReadFile& file, const HeaderWords& header) {
  if (const auto* format = foreign_format_of(bytes_of(header)); format != nullptr)
    file.fail(0, str("expected a token shard, found ", format->what));
}

// Widens tokens that are at the end of the bytes of `tokens`, in order, so that writes never pass
// unread bytes.
template <class Narrow>
void widen_in_place(std::span<std::int32_t> tokens) {
  constexpr std::size_t kBlock = 4096 / sizeof(Narrow);
  std::array<Narrow, kBlock> block;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const auto* source =
      reinterpret_cast<const std::byte*>(tokens.data()) + (4 - sizeof(Narrow)) * tokens.size();
  for (std::size_t i = 0; i < tokens.size(); i += kBlock) {
    const auto n = std::min(kBlock, tokens.size() - i);
    std::memcpy(block.data(), source + sizeof(Narrow) * i, sizeof(Narrow) * n);
    for (std::size_t j = 0; j < n; ++j)
      tokens[i + j] = block[j];
  }
}

// Narrows tokens of 8 bytes; values that do not fit int32 become -1.
void read_narrowed(const ReadFile& file, std::span<std::int32_t> out, std::int64_t offset) {
  constexpr std::size_t kBlock = 2048;
  std::array<std::int64_t, kBlock> block;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  for (std::size_t i = 0; i < out.size(); i += kBlock) {
    const auto n = std::min(kBlock, out.size() - i);
    const auto part = std::span(block).first(n);
    file.read(std::as_writable_bytes(part), offset + 8 * static_cast<std::int64_t>(i));
    for (std::size_t j = 0; j < n; ++j)
      out[i + j] =
          0 <= block[j] && block[j] < kPastInt32 ? static_cast<std::int32_t>(block[j]) : -1;
  }
}

}  // namespace

const char* name(Boundary boundary) {
  switch (boundary) {
    case Boundary::front: return "front";
    case Boundary::behind: return "behind";
    case Boundary::listed: return "listed";
    case Boundary::none: return "none";
  }
  return "?";
}

TokenFile::TokenFile(ReadFile file) : file_(std::move(file)) {
  recognise();
}

TokenFile::TokenFile(ReadFile file, const TokenFormat& format) : file_(std::move(file)) {
  if (format.header_bytes == 0) {
    format_ = format;
    take_all();
    return;
  }
  recognise();
  if (format_.header_bytes != format.header_bytes || format_.token_bytes != format.token_bytes)
    file_.fail(0, str("expected ", format.token_bytes, " bytes per token after a header of ",
                      format.header_bytes, " bytes, found a shard of ", format_.name));
  format_ = format;
}

void TokenFile::recognise() {
  const auto bytes = file_.size_bytes();
  if (bytes == 0) file_.fail(0, "the file is empty");
  HeaderWords header{};
  const auto head = std::min<std::int64_t>(bytes, kShardHeaderBytes);
  file_.read(std::as_writable_bytes(std::span(header)).first(static_cast<std::size_t>(head)), 0);
  const bool llmc = bytes >= 4 && (header[0] == kShardMagicU16 || header[0] == kShardMagicU32);
  const bool llmq = bytes_of(header).starts_with(kLlmqMagic);
  if ((llmc || llmq) && bytes < kShardHeaderBytes)
    file_.fail(bytes, str("truncated: expected a header of ", kShardHeaderBytes, " bytes"));
  if (llmc) return read_llmc_header(header);
  if (llmq) return read_llmq_header(header);
  check_no_foreign_format(file_, header);
  if (bytes >= kShardHeaderBytes && looks_like_a_header(header))
    file_.fail(0, str("wrong magic ", header[0], ", expected ", kShardMagicU16, " (u16) or ",
                      kShardMagicU32, " (u32)"));
  if (file_.path().extension() != ".bin")
    file_.fail(0,
               "not a token shard: the magic is unknown, and headerless shards must be named *.bin "
               "(`lockstep data pack` makes shards from text)");
  format_ = nanogpt_format();
  take_all();
}

void TokenFile::take_all() {
  const auto bytes = file_.size_bytes();
  if (bytes == 0) file_.fail(0, "the file is empty");
  tokens_ = bytes / format_.token_bytes;
  if (bytes % format_.token_bytes != 0)
    file_.fail(offset_of(tokens_),
               str("truncated: ", format_.name, " shards have ", format_.token_bytes,
                   " bytes per token, but the file has ", bytes, " bytes"));
}

void TokenFile::check_size(std::int64_t expected) const {
  if (file_.size_bytes() == expected) return;
  file_.fail(
      std::min(expected, file_.size_bytes()),
      str(file_.size_bytes() < expected ? "truncated" : "too long", ": ", tokens_, " tokens need ",
          expected, " bytes, but the file has ", file_.size_bytes(), " bytes"));
}

void TokenFile::read_llmc_header(Header header) {
  format_ = header[0] == kShardMagicU16 ? gpt2_format() : llama3_format();
  const int version = header[0] == kShardMagicU16 ? kShardVersionU16 : kShardVersionU32;
  if (header[1] != version) file_.fail(4, str("version ", header[1], ", expected ", version));
  tokens_ = header[2];
  if (tokens_ <= 0)
    file_.fail(8, str("the header specifies ", tokens_, " tokens, expected at least 1"));
  check_size(offset_of(tokens_));
}

// [6] tells whether there are masks; older writers leave the filler "****" there.
void TokenFile::read_llmq_header(Header header) {
  format_ = llmq_format();
  if (header[2] != 1 && header[2] != 2)
    file_.fail(8, str("version ", header[2], ", expected 1 or 2"));
  if (header[3] != 4) file_.fail(12, str(header[3], " bytes per token, expected 4"));
  tokens_ = header[4];
  if (tokens_ <= 0)
    file_.fail(16, str("the header specifies ", tokens_, " tokens, expected at least 1"));
  const bool has_masks = header[6] == 1;
  if (has_masks) mask_offset_ = offset_of(tokens_);
  check_size(offset_of(tokens_) + (has_masks ? (tokens_ + 7) / 8 : 0));
}

std::int64_t TokenFile::offset_of(std::int64_t token) const {
  return format_.header_bytes + token * format_.token_bytes;
}

std::int64_t TokenFile::value_at(std::int64_t token) const {
  std::uint64_t value = 0;
  const auto size = static_cast<std::size_t>(format_.token_bytes);
  file_.read(std::as_writable_bytes(std::span(&value, 1)).first(size), offset_of(token));
  const int unused_bits = 64 - 8 * format_.token_bytes;
  return format_.is_signed ? static_cast<std::int64_t>(value << unused_bits) >> unused_bits
                           : static_cast<std::int64_t>(value);
}

void TokenFile::read(std::span<std::int32_t> out, std::int64_t first,
                     std::int64_t vocabulary) const {
  const auto bytes = std::as_writable_bytes(out);
  switch (format_.token_bytes) {
    case 1:
      file_.read(bytes.last(out.size()), offset_of(first));
      widen_in_place<std::uint8_t>(out);
      break;
    case 2:
      file_.read(bytes.last(2 * out.size()), offset_of(first));
      widen_in_place<std::uint16_t>(out);
      break;
    case 4: file_.read(bytes, offset_of(first)); break;
    default: read_narrowed(file_, out, offset_of(first)); break;
  }
  if (format_.is_signed)
    vocabulary =
        std::min(vocabulary, std::int64_t{1} << (8 * std::min(format_.token_bytes, 4) - 1));
  std::uint32_t largest = 0;
  for (const auto token : out)
    largest = std::max(largest, static_cast<std::uint32_t>(token));
  if (largest < vocabulary) return;
  const auto bad = std::find_if(out.begin(), out.end(), [&](std::int32_t token) {
    return static_cast<std::uint32_t>(token) >= vocabulary;
  });
  if (bad == out.end()) return;
  const auto at = first + (bad - out.begin());
  file_.fail(offset_of(at),
             value_at(at) < 0
                 ? str("token ", at, " is ", value_at(at), ", expected a non-negative id")
                 : str("token ", at, " is ", value_at(at), ", expected ids below ", vocabulary));
}

}  // namespace lockstep
