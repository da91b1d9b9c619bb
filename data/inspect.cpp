#include "data/inspect.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iomanip>
#include <sstream>
#include <vector>

#include "core/file.h"
#include "core/units.h"
#include "data/shown_text.h"
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

// Which tokens from `at` on count in the loss; empty: all do, there are no masks.
std::vector<bool> mask_of(const Dataset& dataset, std::int64_t at, std::size_t count) {
  std::vector<bool> mask;
  for (auto token = at; token < at + static_cast<std::int64_t>(count); ++token) {
    const auto shard = dataset.shard_of(token);
    const auto path = dataset.shards()[shard].file.file().path();
    const auto bits = path.parent_path() / mask_name(path.filename().string());
    if (!dataset.shards()[shard].ends || !path_exists(bits)) return {};
    const ReadFile file(bits);
    const auto end = std::min(dataset.shard_start(shard) + dataset.shards()[shard].file.tokens(),
                              at + static_cast<std::int64_t>(count));
    const auto first = token - dataset.shard_start(shard);
    const auto last = end - 1 - dataset.shard_start(shard);
    std::vector<std::byte> bytes(static_cast<std::size_t>(last / 8 - first / 8 + 1));
    file.read(bytes, first / 8);
    for (auto i = first; i <= last; ++i)
      mask.push_back(
          (std::to_integer<int>(bytes[static_cast<std::size_t>(i / 8 - first / 8)]) >> (i % 8) &
           1) != 0);
    token = end - 1;
  }
  return mask;
}

// Documents that end at or before token `at`, where lists say it.
std::int64_t documents_before(const Dataset& dataset, std::int64_t at) {
  std::int64_t count = 0;
  const auto last = dataset.shard_of(at);
  for (std::size_t s = 0; s < last; ++s)
    count += dataset.shards()[s].ends->count();
  return count + dataset.shards()[last].ends->first_after(at - dataset.shard_start(last));
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

void write_tokens(std::ostream& out, const Dataset& dataset, const Tokenizer* tokenizer,
                  std::int64_t at, const std::vector<std::int32_t>& tokens, bool listed) {
  const auto mask = mask_of(dataset, at, tokens.size());
  out << "\ntokens " << with_commas(at) << " to "
      << with_commas(at + static_cast<std::int64_t>(tokens.size()));
  if (listed) out << ", from document " << with_commas(documents_before(dataset, at)) << " on";
  if (!mask.empty()) out << ", {+what counts in the loss+}";
  out << ":\n";
  std::vector<std::int32_t> starts(tokens.size());
  if (listed) dataset.find_documents(starts, tokens, at);
  Writer writer(dataset, tokenizer);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    writer.add(tokens[i], i > 0 && starts[i] == static_cast<std::int32_t>(i),
               !mask.empty() && mask[i]);
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
  describe_lengths(out, listed ? listed_lengths(dataset) : scanned_lengths(dataset, most_scanned));
  std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, dataset.tokens() - at)));
  dataset.read(tokens, at);
  write_tokens(out, dataset, tokenizer, at, tokens, listed);
  return std::move(out).str();
}

}  // namespace lockstep
