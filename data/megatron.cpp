#include "data/megatron.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::int64_t kHeaderBytes = 34;
constexpr std::string_view kMagic("MMIDIDX\0\0", 9);

struct Type {
  const char* name;
  int bytes;  // 0: not a type of tokens
  bool is_signed;
};
constexpr std::array<Type, 9> kTypes = {{{"0", 0, false},
                                         {"u8", 1, false},
                                         {"i8", 1, true},
                                         {"i16", 2, true},
                                         {"i32", 4, true},
                                         {"i64", 8, true},
                                         {"f64", 0, false},
                                         {"f32", 0, false},
                                         {"u16", 2, false}}};

// A list in the file, read in pieces with ascending indices.
template <class Number>
class List {
 public:
  List(const ReadFile& file, std::int64_t at, std::int64_t count)
      : file_(file), at_(at), count_(count) {}

  std::int64_t operator[](std::int64_t i) {
    if (i < first_ || i >= first_ + std::ssize(piece_)) {
      constexpr std::int64_t kPiece = 1 << 16;
      first_ = i;
      piece_.resize(static_cast<std::size_t>(std::min(kPiece, count_ - i)));
      file_.read(std::as_writable_bytes(std::span(piece_)), offset_of(i));
    }
    return piece_[static_cast<std::size_t>(i - first_)];
  }
  std::int64_t offset_of(std::int64_t i) const {
    return at_ + static_cast<std::int64_t>(sizeof(Number)) * i;
  }

 private:
  const ReadFile& file_;
  std::int64_t at_, count_, first_ = 0;
  std::vector<Number> piece_;
};

template <class Number>
Number read_one(const ReadFile& file, std::int64_t at) {
  Number value = 0;
  file.read(std::as_writable_bytes(std::span(&value, 1)), at);
  return value;
}

}  // namespace

MegatronIndex::MegatronIndex(ReadFile file) : file_(std::move(file)) {
  read_header();
  take_tokens();
  if (const auto first = read_one<std::int64_t>(file_, documents_at_); first != 0)
    file_.fail(documents_at_, str("the first document starts at sequence ", first, ", expected 0"));
  if (const auto last = read_one<std::int64_t>(file_, offset_of(documents_ - 1));
      last != sequences_)
    file_.fail(offset_of(documents_ - 1), str("the last document ends at sequence ", last,
                                              ", but there are ", sequences_, " sequences"));
}

void MegatronIndex::read_header() {
  const auto bytes = file_.size_bytes();
  if (bytes < kHeaderBytes)
    file_.fail(bytes, str("truncated: a Megatron index has a header of ", kHeaderBytes, " bytes"));
  std::array<char, kHeaderBytes> header{};
  file_.read(std::as_writable_bytes(std::span(header)), 0);
  if (!std::string_view(header.data(), header.size()).starts_with(kMagic))
    file_.fail(0, "not a Megatron index: expected MMIDIDX and two zero bytes at the start");
  const auto word = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, header.data() + at, sizeof value);
    return value;
  };
  if (word(9) != 1) file_.fail(9, str("version ", word(9), ", expected 1"));
  const auto code = static_cast<unsigned char>(header[17]);
  if (code >= kTypes.size() || kTypes[code].bytes == 0)
    file_.fail(17, str("token type ", code < kTypes.size() ? kTypes[code].name : str(int{code}),
                       ", expected u16, i32, u8, i8, i16 or i64"));
  format_ = {"Megatron", 0, kTypes[code].bytes, 0, Boundary::listed, -1, kTypes[code].is_signed};

  const auto sequences = word(18), indices = word(26);
  const auto room = static_cast<std::uint64_t>(bytes - kHeaderBytes);
  if (sequences == 0) file_.fail(18, "the index has no sequences");
  if (sequences > room / 12)
    file_.fail(18, str(sequences, " sequences are impossible in a file of ", bytes, " bytes"));
  if (indices < 2 || indices > (room - 12 * sequences) / 8)
    file_.fail(26, str(indices, " document indices are impossible in a file of ", bytes,
                       " bytes with ", sequences, " sequences"));
  sequences_ = static_cast<std::int64_t>(sequences);
  documents_ = static_cast<std::int64_t>(indices) - 1;
  offsets_at_ = kHeaderBytes + 4 * sequences_;
  documents_at_ = offsets_at_ + 8 * sequences_;
  const auto end = documents_at_ + 8 * (documents_ + 1);
  if (bytes == end + sequences_)
    file_.fail(end, "the sequences have modes: multimodal datasets are not supported");
  if (bytes != end)
    file_.fail(
        end, str("too long: the lists end at byte ", end, ", but the file has ", bytes, " bytes"));
}

// Derives the number of tokens from the end of the last sequence.
void MegatronIndex::take_tokens() {
  constexpr std::int64_t kMost = std::int64_t{1} << 60;
  const auto last = sequences_ - 1;
  const auto length = read_one<std::int32_t>(file_, kHeaderBytes + 4 * last);
  const auto at = offsets_at_ + 8 * last;
  const auto offset = read_one<std::int64_t>(file_, at);
  if (length < 0)
    file_.fail(kHeaderBytes + 4 * last,
               str("sequence ", last, " has ", length, " tokens, expected 0 or more"));
  if (offset < 0 || offset > kMost || offset % format_.token_bytes != 0)
    file_.fail(
        at, str("sequence ", last, " starts at byte ", offset, " of the .bin, where no token of ",
                format_.token_bytes, " bytes can start"));
  tokens_ = offset / format_.token_bytes + length;
}

std::int64_t MegatronIndex::token_of(std::int64_t sequence, std::int64_t offset) const {
  if (offset < 0 || offset % format_.token_bytes != 0 || offset / format_.token_bytes > tokens_)
    file_.fail(offsets_at_ + 8 * sequence,
               str("sequence ", sequence, " starts at byte ", offset,
                   " of the .bin; expected a multiple of ", format_.token_bytes, " up to ",
                   tokens_ * format_.token_bytes));
  return offset / format_.token_bytes;
}

std::int64_t MegatronIndex::checked_document(std::int64_t i, std::int64_t sequence) const {
  if (sequence < 0 || sequence > sequences_)
    file_.fail(offset_of(i),
               str("document ", i, " ends at sequence ", sequence, ", expected 0 to ", sequences_));
  return sequence;
}

std::int64_t MegatronIndex::end(std::int64_t i) const {
  const auto sequence = checked_document(i, read_one<std::int64_t>(file_, offset_of(i)));
  if (sequence == sequences_) return tokens_;
  return token_of(sequence, read_one<std::int64_t>(file_, offsets_at_ + 8 * sequence));
}

// Needs two reads if the sequences of the documents are close together.
void MegatronIndex::read(std::int64_t i, std::span<std::int64_t> ends) const {
  constexpr std::int64_t kNear = 4096;
  file_.read(std::as_writable_bytes(ends), offset_of(i));  // sequences at first
  for (auto& sequence : ends)
    sequence = checked_document(i++, sequence);
  const auto [first, last] = std::ranges::minmax(ends);
  std::vector<std::int64_t> offsets;
  if (last - first < kNear) {
    offsets.resize(static_cast<std::size_t>(std::min(last + 1, sequences_) - first));
    file_.read(std::as_writable_bytes(std::span(offsets)), offsets_at_ + 8 * first);
  }
  for (auto& at : ends) {
    const auto sequence = at;
    if (sequence == sequences_)
      at = tokens_;
    else if (!offsets.empty())
      at = token_of(sequence, offsets[static_cast<std::size_t>(sequence - first)]);
    else
      at = token_of(sequence, read_one<std::int64_t>(file_, offsets_at_ + 8 * sequence));
  }
}

void MegatronIndex::for_each(FunctionRef<void(std::int64_t end)> visit) const {
  List<std::int64_t> documents(file_, documents_at_, documents_ + 1);
  List<std::int64_t> offsets(file_, offsets_at_, sequences_);
  std::int64_t last_sequence = 0, last = 0;
  for (std::int64_t i = 0; i < documents_; ++i) {
    const auto sequence = checked_document(i, documents[i + 1]);
    if (sequence < last_sequence)
      file_.fail(offset_of(i), str("document ", i, " ends at sequence ", sequence,
                                   ", but the previous one ends at sequence ", last_sequence));
    const auto end = sequence == sequences_ ? tokens_ : token_of(sequence, offsets[sequence]);
    if (end < last)
      file_.fail(offsets.offset_of(sequence), str("sequence ", sequence, " starts at token ", end,
                                                  ", but an earlier one starts at token ", last));
    if (end > last) visit(end);
    last_sequence = sequence;
    last = end;
  }
}

void MegatronIndex::check() const {
  check_sequences();
  for_each([](std::int64_t) {});
}

void MegatronIndex::check_sequences() const {
  List<std::int32_t> lengths(file_, kHeaderBytes, sequences_);
  List<std::int64_t> offsets(file_, offsets_at_, sequences_);
  std::int64_t expected = 0;  // at most the end of all tokens, where the last sequence ends
  for (std::int64_t i = 0; i < sequences_; ++i) {
    if (lengths[i] < 0)
      file_.fail(lengths.offset_of(i),
                 str("sequence ", i, " has ", lengths[i], " tokens, expected 0 or more"));
    if (offsets[i] != expected)
      file_.fail(offsets.offset_of(i),
                 str("sequence ", i, " starts at byte ", offsets[i], " of the .bin, expected ",
                     expected, ", where the previous one ends; sequences must be contiguous"));
    expected += lengths[i] * format_.token_bytes;
    if (expected > tokens_ * format_.token_bytes)
      file_.fail(lengths.offset_of(i),
                 str("sequence ", i, " of ", lengths[i], " tokens ends after the last sequence"));
  }
}

}  // namespace lockstep
