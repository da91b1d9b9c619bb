#include "checkpoint/ranges.h"

#include <algorithm>

#include "core/hash.h"

namespace lockstep {
namespace {

constexpr std::int64_t kReadBytes = std::int64_t{4} << 20;  // size of a read; fits a CPU cache

}  // namespace

HashedRange header_of(const ManifestFile& file) {
  return {0, file.header_bytes, "the header", file.header_hash};
}

std::vector<std::vector<HashedRange>> ranges_by_file(const CheckpointManifest& manifest) {
  std::vector<std::vector<HashedRange>> files;
  for (const auto& file : manifest.files)
    files.push_back({header_of(file)});
  for (const auto& tensor : manifest.tensors)
    for (const auto& slice : tensor.slices)
      files.at(static_cast<std::size_t>(slice.file))
          .push_back({slice.offset, tensor.slice_bytes(slice), tensor.name, slice.hash});
  for (auto& ranges : files)
    std::sort(ranges.begin(), ranges.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return files;
}

ReadFile open_checked(const std::filesystem::path& checkpoint, const ManifestFile& expected) {
  ReadFile file(checkpoint / expected.name);
  if (file.size_bytes() != expected.bytes)
    file.fail(std::min(file.size_bytes(), expected.bytes),
              str("expected a file of ", expected.bytes, " bytes, found ", file.size_bytes()));
  return file;
}

void check_hash(const ReadFile& file, std::int64_t offset, const std::string& what,
                const std::string& expected, const std::string& found) {
  if (found != expected)
    file.fail(offset, str(what, " is damaged: its XXH3-128 is ", found, ", expected ", expected));
}

PieceReader::~PieceReader() {
  came_ = Event();
  behind_.reset();  // waits for its reads
}

// Bytes of the piece from `offset` on, at most `most`. If fewer, their number is a multiple of 8.
std::span<const std::byte> PieceReader::Piece::at(const ReadFile& of, std::int64_t offset,
                                                  std::int64_t most) const {
  const auto here = std::ssize(bytes) - (offset - begin);
  if (file != &of || offset < begin || here <= 0) return {};
  const auto count = here >= most ? most : here / 8 * 8;
  return std::span(bytes).subspan(static_cast<std::size_t>(offset - begin),
                                  static_cast<std::size_t>(count));
}

void PieceReader::fill(Piece& piece, const ReadFile& file, std::int64_t begin, std::int64_t end) {
  piece.file = nullptr;
  piece.begin = begin;
  piece.bytes.resize(static_cast<std::size_t>(std::min(end - begin, kReadBytes)));
  file.read(piece.bytes, begin);
  piece.file = &file;
}

// Starts to read the piece at `begin` in the background.
void PieceReader::expect(const ReadFile& file, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  if (!behind_) behind_.emplace(Device{}, "reading", Stream::Mode::queued);
  behind_->enqueue([this, &file, begin, end](Stream&) {
    try {
      fill(coming_, file, begin, end);
    } catch (const std::exception&) {  // read() reads it again and gets the error
    }
  });
  came_ = behind_->record();
}

void PieceReader::read(const ReadFile& file, std::int64_t offset, std::int64_t bytes,
                       FunctionRef<void(std::span<const std::byte>, std::int64_t)> use) {
  const bool follows = last_file_ == &file && last_end_ == offset;
  const auto end = offset + bytes, last = follows ? file.size_bytes() : end;
  for (auto at = offset; at < end;) {
    auto piece = ready_.at(file, at, end - at);
    if (piece.empty()) {
      came_.synchronize();
      if (coming_.at(file, at, end - at).empty()) {
        fill(ready_, file, at, last);
      } else {
        std::swap(ready_, coming_);
      }
      coming_.file = nullptr;
      expect(file, ready_.begin + std::ssize(ready_.bytes), last);
      piece = ready_.at(file, at, end - at);
    }
    use(piece, at - offset);
    at += std::ssize(piece);
  }
  last_file_ = &file;
  last_end_ = end;
}

void PieceReader::verify(const ReadFile& file, const HashedRange& range,
                         FunctionRef<void(std::span<const std::byte> piece)> use) {
  Hasher hasher;
  read(file, range.offset, range.bytes, [&](auto piece, std::int64_t) {
    hasher.add(piece);
    use(piece);
  });
  check_hash(file, range.offset, range.what, range.hash, hasher.hex());
}

void copy_verified(const std::filesystem::path& from, const std::filesystem::path& to,
                   std::span<const HashedRange> ranges) {
  const ReadFile in(from);
  RangeWriter out(to, to, RangeWriter::Way::direct, RangeWriter::Start::empty);
  PieceReader reader;
  for (const auto& range : ranges)
    reader.verify(in, range, [&](std::span<const std::byte> bytes) { out.write(bytes); });
  out.commit();
}

}  // namespace lockstep
