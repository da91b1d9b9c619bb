// tokenize TOKENIZER FILE: of the documents in FILE, between which are zero bytes, the ids, a line
// each; or, with --seconds, how long one thread took for them, and how many they are.
#include <chrono>
#include <iostream>
#include <string>

#include "core/file.h"
#include "data/tokenizer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 32;

// act(ids) of each document.
template <class Act>
void for_each_document(const Tokenizer& tokenizer, std::string_view text, const Act& act) {
  Tokenizer::Memory memory;
  std::vector<std::int32_t> ids;
  for (;;) {
    const auto end = text.find('\0');
    ids.clear();
    tokenizer.encode(text.substr(0, end), ids, memory);
    act(ids);
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

void print_ids(const Tokenizer& tokenizer, std::string_view text) {
  std::string out;
  for_each_document(tokenizer, text, [&](const auto& ids) {
    for (const auto id : ids)
      out += std::to_string(id) + ' ';
    out += '\n';
  });
  std::cout << out;
}

void print_seconds(const Tokenizer& tokenizer, std::string_view text) {
  std::size_t tokens = 0;
  const auto begin = std::chrono::steady_clock::now();
  for_each_document(tokenizer, text, [&](const auto& ids) { tokens += ids.size(); });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << seconds.count() << ' ' << tokens << '\n';
}

}  // namespace
}  // namespace lockstep

int main(int count, char** arguments) {
  using namespace lockstep;
  if (count < 3) return 64;
  try {
    const auto tokenizer = open_tokenizer(arguments[1]);
    const auto text = read_text(arguments[2], kMostBytes);
    count > 3 ? print_seconds(*tokenizer, text) : print_ids(*tokenizer, text);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
