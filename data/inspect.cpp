#include "data/inspect.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iomanip>
#include <sstream>
#include <vector>

#include "core/units.h"
#include "data/shown_text.h"
#include "data/tokenizer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;

struct Lengths {
  std::int64_t documents = 0, tokens = 0, shortest = 0, longest = 0;
  std::int64_t before = 0;                 // documents that end at the token to show, or before
  std::array<std::int64_t, 64> of_bits{};  // documents of 2^i to 2^(i+1) - 1 tokens

  void add(std::int64_t length) {
    shortest = documents == 0 ? length : std::min(shortest, length);
    longest = std::max(longest, length);
    ++documents;
    tokens += length;
    ++of_bits[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)) - 1)];
  }
};

Lengths listed_lengths(const Dataset& dataset, std::int64_t at) {
  Lengths lengths;
  dataset.for_each_document([&](std::int64_t first, std::int64_t end) {
    lengths.add(end - first);
    lengths.before += end <= at;
  });
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

// One token behind the other, with what is known of each.
class Writer {
 public:
  Writer(const Dataset& dataset, const Tokenizer* tokenizer)
      : format_(dataset.format()), tokenizer_(tokenizer) {}

  void add(std::int32_t token, bool starts, bool counts) {
    if (counts != counts_) text_.mark(counts ? "{+" : "+}");
    counts_ = counts;
    const bool listed = format_.boundary == Boundary::listed;
    if (listed && starts) text_.mark("\n[document]\n");
    if (!listed && token == format_.boundary_token)
      return text_.mark(format_.boundary == Boundary::front ? str("\n[", token, "]\n")
                                                            : str('[', token, "]\n"));
    if (tokenizer_ == nullptr) return text_.mark(str(token, ' '));
    const auto bytes = tokenizer_->bytes_of(token);
    if (bytes.empty()) return text_.mark(str('[', token, ']'));
    if (tokenizer_->is_special(token)) return text_.mark(str('[', shown(bytes), ']'));
    text_.add(bytes);
  }
  std::string take() {
    if (counts_) text_.mark("+}");
    return text_.take() + "\n";
  }

 private:
  TokenFormat format_;
  const Tokenizer* tokenizer_;
  ShownText text_;
  bool counts_ = false;
};

// document: the number of that of token `at`, where lists say it; -1: they do not.
void write_tokens(std::ostream& out, const Dataset& dataset, const Tokenizer* tokenizer,
                  std::int64_t at, std::int64_t count, std::int64_t document) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count)), starts(tokens.size());
  std::vector<std::uint8_t> mask(tokens.size());
  dataset.read(tokens, at);
  dataset.read_mask(mask, at);
  out << "\ntokens " << with_commas(at) << " to "
      << with_commas(at + static_cast<std::int64_t>(tokens.size()));
  if (document >= 0) out << ", from document " << with_commas(document) << " on";
  if (dataset.has_masks()) out << ", {+what counts in the loss+}";
  out << ":\n";
  if (document >= 0) dataset.find_documents(starts, tokens, at);
  Writer writer(dataset, tokenizer);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    writer.add(tokens[i], i > 0 && starts[i] == static_cast<std::int32_t>(i),
               dataset.has_masks() && mask[i] == 1);
  out << writer.take();
}

}  // namespace

std::string inspect(const Dataset& dataset, const Tokenizer* tokenizer, std::int64_t at,
                    std::int64_t count, std::int64_t most_scanned) {
  if (at < 0 || at >= dataset.tokens())
    throw UsageError(str("token ", at, " of a dataset of ", dataset.tokens(), " tokens"));
  if (tokenizer != nullptr && dataset.format().vocabulary != 0 &&
      tokenizer->about().vocabulary != dataset.format().vocabulary)
    throw UsageError(str("the tokenizer ", tokenizer->about().name, " has ",
                         tokenizer->about().vocabulary, " tokens, the dataset's ",
                         dataset.format().vocabulary));
  std::ostringstream out;
  describe_format(out, dataset);
  const bool listed = dataset.format().boundary == Boundary::none ||
                      dataset.lists().front().kind != ShardKind::plain;
  out << "documents    ";
  if (!listed && most_scanned < dataset.tokens())
    out << "in the first " << with_commas(most_scanned) << " tokens: ";
  const auto lengths =
      listed ? listed_lengths(dataset, at) : scanned_lengths(dataset, most_scanned);
  describe_lengths(out, lengths);
  write_tokens(out, dataset, tokenizer, at,
               std::clamp<std::int64_t>(count, 0, dataset.tokens() - at),
               listed ? lengths.before : -1);
  return std::move(out).str();
}

}  // namespace lockstep
