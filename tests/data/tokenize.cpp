// tokenize TOKENIZER FILE: of the documents in FILE, between which are zero bytes, the ids, a line
// each; with --cut BYTES of documents that are cut as pack cuts them, but after that number of
// bytes; with --seconds, how long a processor took for them, and how many they are.
// tokenize TOKENIZER FILE --decode: FILE holds ids, a line of them each a text; in hexadecimal the
// bytes of each, with and without those of special tokens, a space between.
// tokenize --patterns FILE: FILE holds a pattern, a text, a pattern and so on; of each text the
// ends of its parts, or why the pattern is refused.
#include <ctime>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "data/tokenizer/split_pattern.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 32;

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto end = text.find('\0');
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// `cut` bytes of the text, or twice as many while they hold no place where it may be cut.
std::size_t first_cut(const Tokenizer& tokenizer, std::string_view text, std::size_t cut) {
  for (; cut < text.size(); cut *= 2)
    if (const auto place = tokenizer.last_cut(text.substr(0, cut)); place > 0) return place;
  return text.size();
}

void print_ids(const Tokenizer& tokenizer, std::string_view text, std::size_t cut) {
  Tokenizer::Memory memory(MissingBytes::drop);  // as the package
  std::vector<std::int32_t> ids;
  std::string out;
  std::size_t cuts = 0;
  for (auto document : parts_of(text)) {
    ids.clear();
    for (;;) {
      const auto bytes = cut > 0 ? first_cut(tokenizer, document, cut) : document.size();
      tokenizer.encode(document.substr(0, bytes), ids, memory);
      document.remove_prefix(bytes);
      if (document.empty()) break;
      ++cuts;
    }
    for (const auto id : ids)
      out += std::to_string(id) + ' ';
    out += '\n';
  }
  std::cout << out;
  if (cut > 0) std::cerr << cuts << '\n';
}

void print_seconds(const Tokenizer& tokenizer, std::string_view text) {
  Tokenizer::Memory memory;
  std::vector<std::int32_t> ids;
  std::size_t tokens = 0;
  const auto begin = std::clock();
  for (const auto document : parts_of(text)) {
    ids.clear();
    tokenizer.encode(document, ids, memory);
    tokens += ids.size();
  }
  std::cout << static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC << ' ' << tokens << '\n';
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes)
    for (const int shift : {4, 0})
      out += "0123456789abcdef"[static_cast<unsigned char>(c) >> shift & 15];
  return out;
}

void print_texts(const Tokenizer& tokenizer, const std::string& lines) {
  std::istringstream in(lines);
  std::string out;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    const std::vector<std::int32_t> ids{std::istream_iterator<std::int32_t>(words), {}};
    out += hex(tokenizer.decode(ids, Tokenizer::Specials::named)) + ' ' +
           hex(tokenizer.decode(ids)) + '\n';
  }
  std::cout << out;
}

void print_parts(std::string_view pairs) {
  const auto parts = parts_of(pairs);
  std::string out;
  for (std::size_t i = 0; i + 1 < parts.size(); i += 2) {
    const auto before = out.size();
    try {
      const SplitPattern pattern{std::string(parts[i])};
      pattern.split(parts[i + 1], [&](std::string_view part, bool) {
        out += std::to_string(part.data() + part.size() - parts[i + 1].data()) + ' ';
      });
    } catch (const DataError& error) {
      out.resize(before);
      out += str("refused: ", error.what());
    }
    out += '\n';
  }
  std::cout << out;
}

}  // namespace
}  // namespace lockstep

int main(int count, char** arguments) {
  using namespace lockstep;
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() < 2) return 64;
  try {
    const auto text = read_text(words[1], kMostBytes);
    if (words[0] == "--patterns") {
      print_parts(text);
      return 0;
    }
    const auto tokenizer = open_tokenizer(words[0]);
    if (words.size() > 2 && words[2] == "--seconds")
      print_seconds(*tokenizer, text);
    else if (words.size() > 2 && words[2] == "--decode")
      print_texts(*tokenizer, text);
    else
      print_ids(*tokenizer, text, words.size() > 3 ? std::stoul(words[3]) : 0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
