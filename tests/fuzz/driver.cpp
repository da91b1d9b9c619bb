// Runs a fuzz target without libFuzzer, with the same inputs each time: each truncation of each
// seed, the seeds, then mutations of mutations.
//   fuzz_tests                   lists the targets
//   fuzz_tests TARGET [INPUTS]   tries that many mutations
//   fuzz_tests TARGET FILE       tries the input in the file, which a finding wrote
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <string>
#include <sysexits.h>

#include "core/philox.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr std::size_t kMostBytes = 4096;
std::string current;       // the input, which a crash saves in
std::string finding_path;  // fuzz-finding-TARGET.bin

void save_current() {
  const int file = open(finding_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  [[maybe_unused]] const auto written = write(file, current.data(), current.size());
  close(file);
}

void run_one(const Target& target, const std::string& input) {
  current = input;
  try {
    target.run(input);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: an exception left the target: %s\n", finding_path.c_str(),
                 error.what());
    std::abort();
  }
}

// Choices draws random numbers, a function of the number of the input and of earlier draws.
class Choices {
 public:
  explicit Choices(std::uint64_t input) : input_(input) {}
  std::size_t below(std::size_t n) { return n == 0 ? 0 : philox(1, input_, drawn_++)[0] % n; }

 private:
  std::uint64_t input_, drawn_ = 0;
};

constexpr std::string_view kNumbers[] = {"0",
                                         "-1",
                                         "1",
                                         "2",
                                         "255",
                                         "65536",
                                         "2147483647",
                                         "2147483648",
                                         "4294967295",
                                         "4294967296",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "9223372036854775808",
                                         "18446744073709551615",
                                         "1e308",
                                         "0.5"};

// Replaces a decimal number by another one.
void replace_number(std::string& text, Choices& choose) {
  const auto start = text.find_first_of("0123456789", choose.below(text.size()));
  if (start == std::string::npos) return;
  const auto end = std::min(text.find_first_not_of("0123456789", start), text.size());
  text.replace(start, end - start, kNumbers[choose.below(std::size(kNumbers))]);
}

// The part of `text` from an `open` to the next `close`, the first one after a random position.
std::pair<std::size_t, std::size_t> group(const std::string& text, char open, char close,
                                          Choices& choose) {
  const auto start = text.find(open, choose.below(text.size()));
  const auto end = start == std::string::npos ? start : text.find(close, start + 1);
  if (end == std::string::npos) return {0, 0};
  return {start, end + 1 - start};
}

// Replaces a list or a string by another one.
void copy_group(std::string& text, const std::string& other, Choices& choose) {
  const bool lists = choose.below(2) == 0;
  const char open = lists ? '[' : '"', close = lists ? ']' : '"';
  const auto [to, to_count] = group(text, open, close, choose);
  const auto [from, count] = group(other, open, close, choose);
  if (to_count > 0 && count > 0) text.replace(to, to_count, other.substr(from, count));
}

// Erases the text between two commas.
void erase_element(std::string& text, Choices& choose) {
  const auto [at, count] = group(text, ',', ',', choose);
  if (count > 0) text.erase(at, count - 1);
}

// Overwrites 4 or 8 bytes with an integer that is critical for readers.
void replace_integer(std::string& text, Choices& choose) {
  constexpr std::uint64_t kValues[] = {0,      1,          0x7f,       0xff,       0x7fff,
                                       0xffff, 1u << 20,   0x7fffffff, 0x80000000, 0xffffffff,
                                       ~0ull,  ~0ull >> 1, 1ull << 63};
  const auto value = kValues[choose.below(std::size(kValues))];
  const std::size_t bytes = choose.below(2) == 0 ? 4 : 8;
  if (text.size() < bytes) return;
  const auto at = choose.below(text.size() - bytes + 1);
  for (std::size_t i = 0; i < bytes; ++i)
    text[at + i] = static_cast<char>(value >> (8 * i));
}

void mutate(std::string& text, const std::string& other, Choices& choose) {
  const auto at = choose.below(text.size());
  const auto count = std::min(choose.below(16) + 1, text.size() - at);
  switch (choose.below(10)) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << choose.below(8)));
      break;
    case 1:
      if (!text.empty()) text[at] = static_cast<char>(choose.below(256));
      break;
    case 2: text.erase(at, count); break;
    case 3: text.insert(at, text.substr(choose.below(text.size()), count)); break;
    case 4: text.insert(at, 1, "{}[]\",:0\\\0 "[choose.below(11)]); break;
    case 5: replace_number(text, choose); break;
    case 6: replace_integer(text, choose); break;
    case 7: copy_group(text, choose.below(2) == 0 ? std::string(text) : other, choose); break;
    case 8: erase_element(text, choose); break;
    default: text.replace(at, count, other.substr(choose.below(other.size()), count)); break;
  }
  if (text.size() > kMostBytes) text.resize(kMostBytes);
}

void run_all(const Target& target, std::uint64_t inputs) {
  auto pool = target.seeds();
  const auto originals = pool.size();
  const auto is_accepted = [&](const std::string& seed) {
    accepted = 0;
    run_one(target, seed);
    return accepted > 0;
  };
  if (!std::any_of(pool.begin(), pool.end(), is_accepted)) {
    std::fprintf(stderr, "%s: the target accepts no seed, so mutations test little\n",
                 finding_path.c_str());
    std::exit(1);
  }
  for (std::size_t s = 0; s < originals; ++s)
    for (std::size_t n = 0; n <= pool[s].size(); ++n)
      run_one(target, pool[s].substr(0, n));
  for (std::uint64_t input = 0; input < inputs; ++input) {
    Choices choose(input);
    const auto from = choose.below(pool.size());
    std::string text = pool[from];
    for (std::size_t i = choose.below(4) + 1; i > 0; --i)
      mutate(text, pool[choose.below(pool.size())], choose);
    run_one(target, text);
    // Some mutants are mutated again; the seeds stay.
    if (pool.size() < originals + 64)
      pool.push_back(text);
    else if (choose.below(8) == 0)
      pool[originals + choose.below(64)] = text;
  }
  std::printf("%llu mutations of %zu seeds, nothing found\n",
              static_cast<unsigned long long>(inputs), originals);
}

int main(int arguments, char** argument) {
  const auto found = Target::all().find(arguments > 1 ? argument[1] : "");
  if (found == Target::all().end()) {
    for (const auto& [name, target] : Target::all())
      std::printf("%s\n", name.c_str());
    return arguments > 1 ? EX_USAGE : 0;
  }
  finding_path = str("fuzz-finding-", found->first, ".bin");
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    std::signal(signal, [](int number) {
      save_current();
      std::signal(number, SIG_DFL);
      std::raise(number);
    });
  const std::string what = arguments > 2 ? argument[2] : "100000";
  if (what.find_first_not_of("0123456789") == std::string::npos) {
    run_all(*found->second, std::strtoull(what.c_str(), nullptr, 10));
  } else {
    std::ifstream in(what, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "cannot open %s\n", what.c_str());
      return EX_NOINPUT;
    }
    run_one(*found->second, {std::istreambuf_iterator<char>(in), {}});
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int arguments, char** argument) {
  return lockstep::fuzz::main(arguments, argument);
}
