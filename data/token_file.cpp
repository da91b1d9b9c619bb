#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr int kHeaderWords = kShardHeaderBytes / 4;
using Header = std::array<std::int32_t, kHeaderWords>;

// What other tools write, so that a path to one of them says so instead of training on its bytes.
struct Stranger {
  std::string_view magic;
  const char* what;
};
constexpr Stranger kStrangers[] = {
    {"MMIDIDX", "a Megatron index"},
    {"BIN.TOK\n", "an LLMQ shard"},
    {"PK\3\4", "a zip archive (a PyTorch or NumPy file)"},
    {"\x93NUMPY", "a NumPy array"},
    {"\x1f\x8b", "a gzip file"},
    {"\x28\xb5\x2f\xfd", "a zstd file"},
    {"PAR1", "a Parquet file"},
    {"GGUF", "a GGUF model"},
    {"\xc6\xd7\x34\x01", "an llm.c model"},  // 20240326
};

constexpr int kGpt2Vocabulary = 50257, kGpt2EndOfText = 50256;
constexpr int kLlama3Vocabulary = 128256, kLlama3BeginOfText = 128000;

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

// A header of zeros behind its first words is no run of tokens: 506 times the same one.
bool looks_like_a_header(const Header& header) {
  return std::all_of(header.begin() + 3, header.end(), [](auto word) { return word == 0; });
}

void check_no_stranger(const ReadFile& file, const Header& header) {
  const std::string_view start(reinterpret_cast<const char*>(header.data()), kShardHeaderBytes);
  for (const auto& stranger : kStrangers)
    if (start.starts_with(stranger.magic))
      file.fail(0, str("expected a token shard, found ", stranger.what));
}

// Widens n u16 that lie in the upper half of `tokens`' own bytes, in order, so that what is written
// never passes what is still to be read.
void widen_in_place(std::span<std::int32_t> tokens) {
  constexpr std::size_t kBlock = 2048;
  std::array<std::uint16_t, kBlock> block;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const auto* source = reinterpret_cast<const std::byte*>(tokens.data()) + 2 * tokens.size();
  for (std::size_t i = 0; i < tokens.size(); i += kBlock) {
    const auto n = std::min(kBlock, tokens.size() - i);
    std::memcpy(block.data(), source + 2 * i, 2 * n);
    for (std::size_t j = 0; j < n; ++j)
      tokens[i + j] = block[j];
  }
}

}  // namespace

const char* name(Boundary boundary) {
  switch (boundary) {
    case Boundary::front: return "front";
    case Boundary::behind: return "behind";
    case Boundary::listed: return "listed";
  }
  return "?";
}

TokenFile::TokenFile(const std::filesystem::path& path) : file_(path) {
  const auto bytes = file_.size_bytes();
  if (bytes == 0) file_.fail(0, "the file is empty");
  Header header{};
  const auto head = std::min<std::int64_t>(bytes, kShardHeaderBytes);
  file_.read(std::as_writable_bytes(std::span(header)).first(static_cast<std::size_t>(head)), 0);
  if (bytes >= 4 && (header[0] == kShardMagicU16 || header[0] == kShardMagicU32)) {
    if (bytes < kShardHeaderBytes)
      file_.fail(bytes, str("truncated: expected a header of ", kShardHeaderBytes, " bytes"));
    read_header(header);
  } else {
    check_no_stranger(file_, header);
    if (bytes >= kShardHeaderBytes && looks_like_a_header(header))
      file_.fail(0, str("wrong magic ", header[0], ", expected ", kShardMagicU16, " (u16) or ",
                        kShardMagicU32, " (u32)"));
    if (path.extension() != ".bin")
      file_.fail(0,
                 "no token shard: it has no known magic, and headerless shards are called *.bin "
                 "(text becomes shards by `lockstep data pack`)");
    format_ = nanogpt_format();
    if (bytes % 2 != 0)
      file_.fail(bytes - 1,
                 "truncated: headerless shards hold 2 bytes a token, but the size is "
                 "odd");
    tokens_ = bytes / 2;
  }
}

TokenFile::TokenFile(const std::filesystem::path& path, const TokenFormat& format)
    : TokenFile(path) {
  if (format_.header_bytes != format.header_bytes || format_.token_bytes != format.token_bytes)
    file_.fail(0, str("expected ", format.token_bytes, " bytes a token behind a header of ",
                      format.header_bytes, ", found a shard of ", format_.name));
  format_ = format;
}

void TokenFile::read_header(std::span<const std::int32_t, kShardHeaderBytes / 4> header) {
  format_ = header[0] == kShardMagicU16 ? gpt2_format() : llama3_format();
  const int version = header[0] == kShardMagicU16 ? kShardVersionU16 : kShardVersionU32;
  if (header[1] != version) file_.fail(4, str("version ", header[1], ", expected ", version));
  tokens_ = header[2];
  if (tokens_ <= 0) file_.fail(8, str("the header says ", tokens_, " tokens"));
  const auto expected = offset_of(tokens_);
  if (file_.size_bytes() != expected)
    file_.fail(std::min(expected, file_.size_bytes()),
               str(file_.size_bytes() < expected ? "truncated" : "too long", ": ", tokens_,
                   " tokens need ", expected, " bytes, but the file has ", file_.size_bytes()));
}

std::int64_t TokenFile::offset_of(std::int64_t token) const {
  return format_.header_bytes + token * format_.token_bytes;
}

void TokenFile::read(std::span<std::int32_t> out, std::int64_t first,
                     std::int64_t vocabulary) const {
  const auto bytes = std::as_writable_bytes(out);
  if (format_.token_bytes == 4) {
    file_.read(bytes, offset_of(first));
  } else {
    file_.read(bytes.last(2 * out.size()), offset_of(first));
    widen_in_place(out);
  }
  std::uint32_t largest = 0;
  for (const auto token : out)
    largest = std::max(largest, static_cast<std::uint32_t>(token));
  if (largest < vocabulary) return;
  const auto bad = std::find_if(out.begin(), out.end(), [&](std::int32_t token) {
    return static_cast<std::uint32_t>(token) >= vocabulary;
  });
  if (bad == out.end()) return;
  const auto at = first + (bad - out.begin());
  file_.fail(offset_of(at), str("token ", at, " is ", static_cast<std::uint32_t>(*bad),
                                ", expected ids below ", vocabulary));
}

}  // namespace lockstep
