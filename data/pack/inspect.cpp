#include "data/pack/inspect.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iomanip>
#include <sstream>
#include <vector>

#include "core/units.h"
#include "data/pack/shown_text.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kTokensAtOnce = std::int64_t{1} << 20;

// The document of the requested token; -1: unknown.
struct Holder {
  std::int64_t number = -1, start = -1;
};

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

struct Documents {
  explicit Documents(std::int64_t token) : at(token) {}
  void add(std::int64_t first, std::int64_t end) {
    if (first <= at && at < end) holder = {lengths.documents, first};
    lengths.add(end - first);
  }
  std::int64_t at;
  Lengths lengths;
  Holder holder;  // document of `at`
};

Documents listed_documents(const Dataset& dataset, std::int64_t at) {
  Documents documents(at);
  dataset.for_each_document(
      [&](std::int64_t first, std::int64_t end) { documents.add(first, end); });
  return documents;
}

// Returns the first token of the document of `at` if it is among the last kTokensAtOnce tokens.
std::int64_t start_before(const Dataset& dataset, std::int64_t at) {
  const auto first = std::max<std::int64_t>(at + 1 - kTokensAtOnce, 0);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(at + 1 - first)), starts(tokens.size());
  dataset.read(tokens, first);
  dataset.find_documents(starts, tokens, first);
  return starts.back() > 0 ? first + starts.back() : -1;
}

// Counts the documents in the first `most` tokens, and finds the document of `at` anywhere.
Documents scanned_documents(const Dataset& dataset, std::int64_t at, std::int64_t most) {
  Documents documents(at);
  const auto tokens = std::min(most, dataset.tokens());
  const std::int64_t behind = dataset.format().boundary == Boundary::behind ? 1 : 0;
  std::vector<std::int32_t> piece;
  std::int64_t last = 0;
  for (std::int64_t from = 0; from < tokens; from += kTokensAtOnce) {
    piece.resize(static_cast<std::size_t>(std::min(kTokensAtOnce, tokens - from)));
    dataset.read(piece, from);
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const auto end = from + static_cast<std::int64_t>(i) + behind;
      if (piece[i] != dataset.format().boundary_token || end == last) continue;
      documents.add(last, end);
      last = end;
    }
  }
  if (at >= tokens)
    documents.holder.start = start_before(dataset, at);
  else if (at >= last)
    documents.holder = {documents.lengths.documents, last};
  if (tokens == dataset.tokens() && last < tokens) documents.lengths.add(tokens - last);
  return documents;
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
    out << "unknown\n";
  else
    out << "token " << format.boundary_token << ' '
        << (format.boundary == Boundary::front ? "before" : "after") << " each document\n";
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

// Writer writes tokens one after the other with their marks.
class Writer {
 public:
  Writer(const Dataset& dataset, const Tokenizer* tokenizer)
      : format_(dataset.format()), tokenizer_(tokenizer) {}

  struct About {
    bool starts = false, is_boundary = false;  // start of a document; separator token
    bool counts = false, marked = false;
  };
  void add(std::int32_t token, const About& about) {
    const auto& [starts, is_boundary, counts, marked] = about;
    if (counts != counts_) text_.mark(counts ? "{+" : "+}");
    counts_ = counts;
    if (starts && format_.boundary == Boundary::listed) text_.mark("\n[document]\n");
    if (is_boundary && format_.boundary == Boundary::front) text_.mark("\n");
    if (marked) text_.mark("[>");
    add(token, is_boundary);
    if (marked) text_.mark("<]");
    if (is_boundary) text_.mark("\n");
    if (!is_boundary && tokenizer_ == nullptr) text_.mark(" ");
  }
  std::string take() {
    if (counts_) text_.mark("+}");
    return text_.take() + "\n";
  }

 private:
  void add(std::int32_t token, bool is_boundary) {
    if (tokenizer_ == nullptr && !is_boundary) return text_.mark(std::to_string(token));
    if (is_boundary) return text_.mark(str('[', token, ']'));
    const auto bytes = tokenizer_->bytes_of(token);
    if (bytes.empty()) return text_.mark(str('[', token, ']'));
    if (tokenizer_->is_special(token)) return text_.mark(str('[', shown(bytes), ']'));
    text_.add(bytes);
  }

  TokenFormat format_;
  const Tokenizer* tokenizer_;
  ShownText text_;
  bool counts_ = false;
};

std::string in_words(std::int64_t at, const Holder& document) {
  auto words = str(" around [>token ", with_commas(at), "<]");
  if (document.start < 0)
    return str(words, ", in a document that starts more than ", with_commas(kTokensAtOnce - 1),
               " tokens earlier");
  words += ", in ";
  words += document.number < 0 ? "a document" : str("document ", with_commas(document.number));
  return str(words, ", which starts at token ", with_commas(document.start));
}

// Writes tokens [first, end), with a mark at token `at` unless that is -1.
void write_tokens(std::ostream& out, const Dataset& dataset, const Tokenizer* tokenizer,
                  std::int64_t first, std::int64_t end, std::int64_t at) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(end - first)), starts(tokens.size());
  std::vector<std::uint8_t> mask(tokens.size());
  dataset.read(tokens, first);
  dataset.read_mask(mask, first);
  if (dataset.has_masks()) out << ", {+tokens that count in the loss+}";
  out << ":\n";
  dataset.find_documents(starts, tokens, first);
  Writer writer(dataset, tokenizer);
  const auto& format = dataset.format();
  const auto starts_at = [&](std::size_t i) { return starts[i] == static_cast<std::int32_t>(i); };
  // With a list, only its ends show which tokens are separators; the same token may occur in text.
  // For the first and the last token this is unknown here.
  const auto tells_apart = [&](std::size_t i) {
    if (format.boundary == Boundary::behind) return i + 1 == starts.size() || starts_at(i + 1);
    return format.boundary == Boundary::front && starts_at(i);
  };
  for (std::size_t i = 0; i < tokens.size(); ++i)
    writer.add(tokens[i], {.starts = i > 0 && starts_at(i),
                           .is_boundary = tokens[i] == format.boundary_token && tells_apart(i),
                           .counts = dataset.has_masks() && mask[i] == 1,
                           .marked = first + static_cast<std::int64_t>(i) == at});
  out << writer.take();
}

}  // namespace

std::string inspect(const Dataset& dataset, const Tokenizer* tokenizer,
                    std::optional<std::int64_t> at, std::int64_t count, std::int64_t most_scanned) {
  if (at && (*at < 0 || *at >= dataset.tokens()))
    throw UsageError(
        str("--at ", *at, ": expected a token number from 0 to ", dataset.tokens() - 1));
  if (tokenizer != nullptr && dataset.format().vocabulary != 0 &&
      tokenizer->about().vocabulary != dataset.format().vocabulary)
    throw UsageError(str("the tokenizer ", tokenizer->about().name, " has ",
                         tokenizer->about().vocabulary, " tokens, but the dataset's tokenizer has ",
                         dataset.format().vocabulary));
  std::ostringstream out;
  describe_format(out, dataset);
  const bool listed = dataset.format().boundary == Boundary::none ||
                      dataset.lists().front().kind != ShardKind::plain;
  out << "documents    ";
  if (!listed && most_scanned < dataset.tokens())
    out << "in the first " << with_commas(most_scanned) << " tokens: ";
  const auto middle = at.value_or(0);
  const auto documents =
      listed ? listed_documents(dataset, middle) : scanned_documents(dataset, middle, most_scanned);
  if (dataset.format().boundary == Boundary::none)
    out << "unknown\n";
  else
    describe_lengths(out, documents.lengths);
  count = std::max<std::int64_t>(count, 0);
  const auto first = at ? std::max({*at - count, documents.holder.start, std::int64_t{0}}) : 0;
  const auto end = middle + std::min(count, dataset.tokens() - middle);
  out << "\ntokens " << with_commas(first) << " to " << with_commas(end);
  if (at) out << in_words(*at, documents.holder);
  write_tokens(out, dataset, tokenizer, first, end, at.value_or(-1));
  return std::move(out).str();
}

}  // namespace lockstep
