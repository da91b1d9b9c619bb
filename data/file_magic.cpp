#include "data/file_magic.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "core/git_lfs.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

constexpr const char* kRows = "convert its rows to JSON lines and pack those";
constexpr const char* kUnpack = "extract it and pack the directory";
constexpr const char* kTokens = "it already holds tokens; train on it directly";
constexpr const char* kTwice = "it is compressed twice; decompress it once";
constexpr const char* kNoText = "leave it out, or convert it to text";
constexpr const char* kUtf16 = "convert it: iconv -f UTF-16 -t UTF-8 FILE";

// Magics that consist of letters are longer than words at the start of a text.
constexpr FileMagic kForeign[] = {
    {0, "MMIDIDX", "a Megatron index (*.idx, beside its *.bin)", kTokens},
    {0, "PK\3\4", "a zip archive (also written by PyTorch and NumPy)", kUnpack},
    {0, "\x93NUMPY", "a NumPy array", kNoText},
    {0, "\x1f\x8b", "a gzip file", kTwice},
    {0, "\x28\xb5\x2f\xfd", "a zstd file", kTwice},
    {0, "\xfd\x37zXZ\0"sv, "an xz file",
     "decompress it first: xz -dc FILE | lockstep data pack - ..."},
    {4, "1AY&SY", "a bzip2 file", "decompress it first: bzip2 -dc FILE | lockstep data pack - ..."},
    {0, "\x04\x22\x4d\x18", "an lz4 file",
     "decompress it first: lz4 -dc FILE | lockstep data pack - ..."},
    {0, "7z\xbc\xaf\x27\x1c", "a 7z archive", kUnpack},
    {0, "Rar!\x1a\x07", "a RAR archive", kUnpack},
    {257, "ustar\0"sv, "a tar archive", kUnpack},
    {257, "ustar  \0"sv, "a tar archive", kUnpack},
    {0, "PAR1\x15", "a Parquet file", kRows},
    {0, "ARROW1\0"sv, "an Arrow file", kRows},
    {0, "Obj\1", "an Avro file", kRows},
    {0, "%PDF-", "a PDF document", "extract its text and pack that"},
    {0, "\x89HDF\r\n\x1a\n", "an HDF5 file", kNoText},
    {0, "SQLite format 3\0"sv, "an SQLite database", kRows},
    {0, "GGUF\2\0"sv, "a GGUF model", kNoText},
    {0, "GGUF\3\0"sv, "a GGUF model", kNoText},
    {0, "\xc6\xd7\x34\x01", "an llm.c model", kNoText},  // 20240326
    {0, kGitLfsPointer, "a Git LFS pointer instead of the file (`git lfs pull` downloads it)",
     "run git lfs pull"},
};

constexpr FileMagic kToText[] = {
    {0, "\x88\xd8\x34\x01", "a token shard", kTokens},  // 20240520
    {0, "\xa1\xd9\x34\x01", "a token shard", kTokens},  // 20240801
    {0, "BIN.TOK\n", "an LLMQ token shard", kTokens},
    {0, "\xff\xfe", "text in UTF-16", kUtf16},
    {0, "\xfe\xff", "text in UTF-16", kUtf16},
    {0, "\xff\xff\xff\xff", "an Arrow stream", kRows},
    {0, "\x89PNG\r\n\x1a\n", "a PNG image", kNoText},
    {0, "\xff\xd8\xff", "a JPEG image", kNoText},
    {8, "WEBPVP8", "a WebP image", kNoText},
    {0, "II*\0"sv, "a TIFF image", kNoText},
    {0, "MM\0*"sv, "a TIFF image", kNoText},
    {8, "WAVEfmt ", "a WAVE file", kNoText},
    {0, "OggS\0"sv, "an Ogg file", kNoText},
    {0, "fLaC\0"sv, "a FLAC file", kNoText},
    {0, "ID3\3"sv, "an MP3 file", kNoText},
    {0, "ID3\4"sv, "an MP3 file", kNoText},
    {3,
     "\x18"
     "ftyp",
     "an MP4 video", kNoText},
    {3,
     "\x1c"
     "ftyp",
     "an MP4 video", kNoText},
    {3,
     "\x20"
     "ftyp",
     "an MP4 video", kNoText},
    {0, "\x1a\x45\xdf\xa3", "a Matroska video", kNoText},
    {0,
     "\x7f"
     "ELF",
     "an executable", kNoText},
    {0, "MZ\x90\0"sv, "an executable", kNoText},
    {0, "\xca\xfe\xba\xbe", "an executable", kNoText},
    {0, "\xcf\xfa\xed\xfe", "an executable", kNoText},
    {0, "\0asm\1"sv, "a WebAssembly program", kNoText},
    {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an office document", "extract its text and pack that"},
    {0, "{\\rtf1", "an RTF document", "extract its text and pack that"},
    {0, "\x80\4\x95", "a Python pickle", kNoText},
    {4, "\0\0\0\0{\""sv, "a safetensors file", kNoText},
};

const FileMagic* find(std::span<const FileMagic> formats, std::string_view first_bytes) {
  const auto found = std::ranges::find_if(formats, [&](const FileMagic& format) {
    return first_bytes.size() > format.at &&
           first_bytes.substr(format.at).starts_with(format.magic);
  });
  return found == formats.end() ? nullptr : &*found;
}

}  // namespace

const FileMagic* foreign_format_of(std::string_view first_bytes) {
  return find(kForeign, first_bytes);
}

const FileMagic* format_instead_of_text(std::string_view first_bytes) {
  const auto* format = foreign_format_of(first_bytes);
  return format != nullptr ? format : find(kToText, first_bytes);
}

}  // namespace lockstep
