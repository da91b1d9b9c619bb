#include "data/inspect.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <iomanip>
#include <sstream>
#include <vector>

#include "core/units.h"
#include "data/tokenizer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;

struct Lengths {
  std::int64_t documents = 0, tokens = 0, shortest = 0, longest = 0;
  std::array<std::int64_t, 64> of_bits{};  // documents of 2^i to 2^(i+1) - 1 tokens

  void add(std::int64_t length) {
    shortest = documents == 0 ? length : std::min(shortest, length);
    longest = std::max(longest, length);
    ++documents;
    tokens += length;
    ++of_bits[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)) - 1)];
  }
};

Lengths listed_lengths(const Dataset& dataset) {
  Lengths lengths;
  dataset.for_each_document(
      [&](std::int64_t first, std::int64_t end) { lengths.add(end - first); });
  return lengths;
}

Lengths scanned_lengths(const Dataset& dataset, std::int64_t most) {
  Lengths lengths;
  const auto tokens = std::min(most, dataset.tokens());
  const std::int64_t behind = dataset.format().boundary == Boundary::behind ? 1 : 0;
  std::vector<std::int32_t> piece;
  std::int64_t last = 0;
  for (std::int64_t at = 0; at < tokens; at += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, tokens - at)));
    dataset.read(piece, at);
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const auto end = at + static_cast<std::int64_t>(i) + behind;
      if (piece[i] != dataset.format().boundary_token || end == last) continue;
      lengths.add(end - last);
      last = end;
    }
  }
  if (tokens == dataset.tokens() && last < tokens) lengths.add(tokens - last);
  return lengths;
}

void describe_format(std::ostream& out, const Dataset& dataset) {
  const auto& format = dataset.format();
  out << "format       " << format.name << ", " << 8 * format.token_bytes << " bits a token, ";
  if (format.vocabulary == 0)
    out << "vocabulary unknown\n";
  else
    out << "vocabulary " << with_commas(format.vocabulary) << '\n';
  out << "boundary     ";
  if (format.boundary == Boundary::listed)
    out << "listed beside the shards\n";
  else if (format.boundary == Boundary::none)
    out << "not known\n";
  else
    out << "token " << format.boundary_token << ' '
        << (format.boundary == Boundary::front ? "in front of" : "behind") << " each document\n";
  out << "shards       " << with_commas(static_cast<std::int64_t>(dataset.shards())) << '\n'
      << "tokens       " << with_commas(dataset.tokens()) << '\n'
      << "fingerprint  " << dataset.fingerprint() << '\n';
}

void describe_lengths(std::ostream& out, const Lengths& lengths) {
  out << with_commas(lengths.documents) << '\n';
  if (lengths.documents == 0) return;
  const auto mean = static_cast<double>(lengths.tokens) / static_cast<double>(lengths.documents);
  out << "lengths      " << with_commas(lengths.shortest) << " to " << with_commas(lengths.longest)
      << " tokens, mean " << std::fixed << std::setprecision(1) << mean << '\n';
  const auto most = *std::max_element(lengths.of_bits.begin(), lengths.of_bits.end());
  for (std::size_t i = 0; i < lengths.of_bits.size(); ++i) {
    const auto n = lengths.of_bits[i];
    if (n == 0) continue;
    out << "  from " << std::setw(13) << with_commas(std::int64_t{1} << i) << std::setw(14)
        << with_commas(n) << "  "
        << std::string(static_cast<std::size_t>((40 * n + most - 1) / most), '#') << '\n';
  }
}

// A byte as text; what would steer a terminal as \xHH.
void write_byte(std::ostream& out, std::int32_t byte) {
  const bool plain = byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  if (plain) {
    out << static_cast<char>(byte);
  } else {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(byte));
    out << hex;
  }
}

void write_tokens(std::ostream& out, const Dataset& dataset,
                  const std::vector<std::int32_t>& tokens) {
  const auto& format = dataset.format();
  const bool bytes = format.vocabulary == ByteTokenizer::kVocabulary;
  for (const auto token : tokens) {
    const bool boundary = token == format.boundary_token && format.boundary != Boundary::listed;
    if (boundary && format.boundary == Boundary::front) out << "\n[" << token << "]\n";
    if (boundary && format.boundary == Boundary::behind) out << '[' << token << "]\n";
    if (boundary) continue;
    if (bytes)
      write_byte(out, token);
    else
      out << token << ' ';
  }
  out << '\n';
}

}  // namespace

std::string inspect(const Dataset& dataset, std::int64_t at, std::int64_t count,
                    std::int64_t most_scanned) {
  if (at < 0 || at >= dataset.tokens())
    throw UsageError(str("token ", at, " of a dataset of ", dataset.tokens(), " tokens"));
  std::ostringstream out;
  describe_format(out, dataset);
  const bool listed = dataset.format().boundary == Boundary::none ||
                      dataset.lists().front().kind != ShardKind::plain;
  out << "documents    ";
  if (!listed && most_scanned < dataset.tokens())
    out << "in the first " << with_commas(most_scanned) << " tokens: ";
  describe_lengths(out, listed ? listed_lengths(dataset) : scanned_lengths(dataset, most_scanned));
  std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, dataset.tokens() - at)));
  dataset.read(tokens, at);
  out << "\ntokens " << with_commas(at) << " to "
      << with_commas(at + static_cast<std::int64_t>(tokens.size())) << ":\n";
  write_tokens(out, dataset, tokens);
  return std::move(out).str();
}

}  // namespace lockstep
