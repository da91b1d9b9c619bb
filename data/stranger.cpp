#include "data/stranger.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace lockstep {
namespace {

using namespace std::string_view_literals;

constexpr const char* kRows = "write its rows as lines of JSON, and pack those";
constexpr const char* kUnpack = "unpack it, and pack the directory";
constexpr const char* kTokens = "it holds tokens already, which may be trained on as they are";
constexpr const char* kTwice = "it is compressed twice: decompress it once";
constexpr const char* kNoText = "leave it out, or write what it says as text";
constexpr const char* kUtf16 = "convert it: iconv -f UTF-16 -t UTF-8 FILE";

// Magics of letters alone are longer than the words that a text might begin with.
constexpr Stranger kStrangers[] = {
    {0, "MMIDIDX", "a Megatron index (called *.idx, with its *.bin beside it)", kTokens},
    {0, "PK\3\4", "a zip archive (as PyTorch and NumPy write, too)", kUnpack},
    {0, "\x93NUMPY", "a NumPy array", kNoText},
    {0, "\x1f\x8b", "a gzip file", kTwice},
    {0, "\x28\xb5\x2f\xfd", "a zstd file", kTwice},
    {0, "\xfd\x37zXZ\0"sv, "an xz file",
     "decompress it on the way: xz -dc FILE | lockstep data pack - ..."},
    {4, "1AY&SY", "a bzip2 file",
     "decompress it on the way: bzip2 -dc FILE | lockstep data pack - ..."},
    {0, "\x04\x22\x4d\x18", "an lz4 file",
     "decompress it on the way: lz4 -dc FILE | lockstep data pack - ..."},
    {0, "7z\xbc\xaf\x27\x1c", "a 7z archive", kUnpack},
    {0, "Rar!\x1a\x07", "a RAR archive", kUnpack},
    {257, "ustar\0"sv, "a tar archive", kUnpack},
    {257, "ustar  \0"sv, "a tar archive", kUnpack},
    {0, "PAR1\x15", "a Parquet file", kRows},
    {0, "ARROW1\0"sv, "an Arrow file", kRows},
    {0, "Obj\1", "an Avro file", kRows},
    {0, "%PDF-", "a PDF document", "extract its text, and pack that"},
    {0, "\x89HDF\r\n\x1a\n", "an HDF5 file", kNoText},
    {0, "SQLite format 3\0"sv, "an SQLite database", kRows},
    {0, "GGUF\2\0"sv, "a GGUF model", kNoText},
    {0, "GGUF\3\0"sv, "a GGUF model", kNoText},
    {0, "\xc6\xd7\x34\x01", "an llm.c model", kNoText},  // 20240326
};

constexpr Stranger kToText[] = {
    {0, "\x88\xd8\x34\x01", "a token shard", kTokens},  // 20240520
    {0, "\xa1\xd9\x34\x01", "a token shard", kTokens},  // 20240801
    {0, "BIN.TOK\n", "a token shard of LLMQ", kTokens},
    {0, "\xff\xfe", "text in UTF-16", kUtf16},
    {0, "\xfe\xff", "text in UTF-16", kUtf16},
    {0, "\xff\xff\xff\xff", "a stream of Arrow's", kRows},
};

const Stranger* find(std::span<const Stranger> strangers, std::string_view first_bytes) {
  const auto found = std::ranges::find_if(strangers, [&](const Stranger& stranger) {
    return first_bytes.size() > stranger.at &&
           first_bytes.substr(stranger.at).starts_with(stranger.magic);
  });
  return found == strangers.end() ? nullptr : &*found;
}

}  // namespace

const Stranger* stranger_of(std::string_view first_bytes) {
  return find(kStrangers, first_bytes);
}

const Stranger* stranger_to_text(std::string_view first_bytes) {
  const auto* stranger = stranger_of(first_bytes);
  return stranger != nullptr ? stranger : find(kToText, first_bytes);
}

}  // namespace lockstep
