#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"

namespace lockstep {
namespace {

constexpr std::size_t kShort = 48;  // bytes; up to here a search of all pairs is faster

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t place_of(std::uint64_t pair) {
  return static_cast<std::size_t>((pair * 0x9e3779b97f4a7c15) >> 32);
}

// Returns the bytes of a character, at most four, as a number.
std::uint32_t code_of(std::string_view character) {
  std::uint32_t number = 0;
  for (const char c : character)
    number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

// Returns a waiting merge as a number, ordered by rank, then from left to right.
std::uint64_t number_of(std::uint32_t rank, std::int32_t place) {
  return std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(place);
}

// RisingQueue returns numbers in ascending order. Numbers that arrive in ascending order, as for a
// long run of one letter, are only appended; a heap has the others.
class RisingQueue {
 public:
  explicit RisingQueue(std::vector<std::uint64_t> numbers) : rising_(std::move(numbers)) {
    std::sort(rising_.begin(), rising_.end());
  }
  bool empty() const { return first_ == rising_.size() && others_.empty(); }
  void push(std::uint64_t number) {
    if (first_ == rising_.size()) {
      rising_.clear();
      first_ = 0;
    }
    if (rising_.empty() || rising_.back() <= number)
      rising_.push_back(number);
    else
      others_.push(number);
  }
  std::uint64_t pop() {
    if (others_.empty() || (first_ < rising_.size() && rising_[first_] <= others_.top()))
      return rising_[first_++];
    const auto number = others_.top();
    others_.pop();
    return number;
  }

 private:
  std::vector<std::uint64_t> rising_;
  std::size_t first_ = 0;  // first one that is left
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> others_;
};

[[noreturn]] void refuse(unsigned byte) {
  constexpr std::string_view kHex = "0123456789abcdef";
  throw MissingByte(str("the tokenizer has no token for the byte ", byte, " (0x", kHex[byte / 16],
                        kHex[byte % 16], ')'));
}

}  // namespace

Bpe::Bpe(const std::unordered_map<std::string, std::int32_t>& tokens,
         const std::vector<Merge>& merges, bool whole_words,
         const std::vector<std::int32_t>& byte_tokens)
    : slots_(std::bit_ceil(2 * merges.size() + 2)) {
  of_byte_.fill(-1);
  std::copy(byte_tokens.begin(), byte_tokens.end(), of_byte_.begin());
  for (const auto& [bytes, id] : tokens) {
    if (bytes.size() == 1) of_byte_[static_cast<unsigned char>(bytes.front())] = id;
    if (!byte_tokens.empty() && bytes.size() > 1 && utf8_at(bytes).bytes == bytes.size())
      of_character_.emplace(code_of(bytes), id);
  }
  for (std::size_t byte = 0; byte < of_byte_.size(); ++byte)
    if (of_byte_[byte] < 0) missing_ += static_cast<char>(byte);
  for (const auto& [left, right, merged, rank] : merges) {
    const auto pair = pair_of(left, right);
    auto place = place_of(pair) & (slots_.size() - 1);
    while (slots_[place].pair != UINT64_MAX && slots_[place].pair != pair)
      place = (place + 1) & (slots_.size() - 1);
    // If a pair appears twice, the last one counts, as in `tokenizers`.
    slots_[place] = {pair, {rank, merged}};
  }
  if (whole_words) whole_ = tokens;
}

// Writes the first tokens of a word, at most one per byte, and returns their number.
std::size_t Bpe::begin(std::string_view word, std::int32_t* tokens) const {
  if (of_character_.empty()) {
    std::transform(word.begin(), word.end(), tokens, [&](char c) { return token_of(c); });
    return word.size();
  }
  std::size_t count = 0;
  while (!word.empty()) {
    const auto character = word.substr(0, std::max<std::size_t>(utf8_at(word).bytes, 1));
    word.remove_prefix(character.size());
    if (const auto found =
            character.size() > 1 ? of_character_.find(code_of(character)) : of_character_.end();
        found != of_character_.end())
      tokens[count++] = found->second;
    else
      for (const char c : character)
        tokens[count++] = token_of(c);
  }
  return count;
}

std::string Bpe::without_missing(std::string_view word, Memory& memory) const {
  std::string kept;
  for (const char c : word)
    if (token_of(c) >= 0)
      kept += c;
    else if (memory.missing_bytes != MissingBytes::drop)
      refuse(static_cast<unsigned char>(c));
  memory.missing += std::ssize(word) - std::ssize(kept);
  return kept;
}

Bpe::Found Bpe::find(std::int32_t left, std::int32_t right) const {
  const auto pair = pair_of(left, right);
  for (auto place = place_of(pair) & (slots_.size() - 1);;
       place = (place + 1) & (slots_.size() - 1)) {
    if (slots_[place].pair == pair) return slots_[place].found;
    if (slots_[place].pair == UINT64_MAX) return {};
  }
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& ids, Memory& memory) const {
  if (word.empty()) return;
  if (word.size() == 1 && token_of(word.front()) >= 0) {
    ids.push_back(token_of(word.front()));
    return;
  }
  if (word.size() > Memory::kMostBytes) return encode_anew(word, ids, memory);
  auto& entry = memory.entries_[std::hash<std::string_view>{}(word) & (Memory::kEntries - 1)];
  if (entry.bytes == word.size() && std::memcmp(entry.word.data(), word.data(), word.size()) == 0) {
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return;
  }
  const auto before = ids.size();
  const auto missing = memory.missing;
  encode_anew(word, ids, memory);
  const auto count = ids.size() - before;
  // Dropped bytes are counted each time.
  if (count > Memory::kMostIds || memory.missing != missing) return;
  entry.bytes = static_cast<std::uint8_t>(word.size());
  entry.count = static_cast<std::uint8_t>(count);
  std::copy(word.begin(), word.end(), entry.word.begin());
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(), entry.ids.begin());
}

// Encodes a word that is not in the memory.
void Bpe::encode_anew(std::string_view word, std::vector<std::int32_t>& ids, Memory& memory) const {
  if (const auto whole = whole_.find(std::string(word)); whole != whole_.end()) {
    ids.push_back(whole->second);
    return;
  }
  std::string kept;
  if (!missing_.empty() &&
      std::any_of(word.begin(), word.end(), [&](char c) { return token_of(c) < 0; })) {
    kept = without_missing(word, memory);
    word = kept;
  }
  if (word.size() <= kShort)
    encode_short(word, ids);
  else
    encode_long(word, ids);
}

void Bpe::encode_short(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, kShort> tokens;
  std::array<Found, kShort> pairs;  // pair of a token and the next one
  std::size_t n = begin(word, tokens.data());
  for (std::size_t i = 0; i + 1 < n; ++i)
    pairs[i] = find(tokens[i], tokens[i + 1]);
  for (;;) {
    std::size_t best = 0;
    std::uint32_t least = UINT32_MAX;
    for (std::size_t i = 0; i + 1 < n; ++i)
      if (pairs[i].rank < least) {
        least = pairs[i].rank;
        best = i;
      }
    if (least == UINT32_MAX) break;
    tokens[best] = pairs[best].merged;
    std::copy(tokens.begin() + best + 2, tokens.begin() + n, tokens.begin() + best + 1);
    if (best + 2 < n)
      std::copy(pairs.begin() + best + 2, pairs.begin() + n - 1, pairs.begin() + best + 1);
    --n;
    if (best > 0) pairs[best - 1] = find(tokens[best - 1], tokens[best]);
    if (best + 1 < n) pairs[best] = find(tokens[best], tokens[best + 1]);
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + n);
}

// Merges wait by rank and place. If a neighbouring merge made one stale, its rank no longer
// matches.
void Bpe::encode_long(std::string_view word, std::vector<std::int32_t>& ids) const {
  struct Token {
    std::int32_t id, next, previous;  // -1: none
  };
  std::vector<std::int32_t> begun(word.size());
  const auto n = static_cast<std::int32_t>(begin(word, begun.data()));
  std::vector<Token> tokens;
  tokens.reserve(word.size());
  for (std::int32_t i = 0; i < n; ++i)
    tokens.push_back({begun[static_cast<std::size_t>(i)], i + 1 < n ? i + 1 : -1, i - 1});
  const auto at = [&](std::int32_t i) -> Token& { return tokens[static_cast<std::size_t>(i)]; };
  const auto find_at = [&](std::int32_t i) {
    const auto& [id, next, previous] = at(i);
    return id < 0 || next < 0 ? Found{} : find(id, at(next).id);
  };
  std::vector<std::uint64_t> first;
  first.reserve(word.size());
  for (std::int32_t i = 0; i + 1 < n; ++i)
    if (const auto rank = find_at(i).rank; rank != UINT32_MAX) first.push_back(number_of(rank, i));
  RisingQueue queue(std::move(first));
  const auto wait = [&](std::int32_t i) {
    if (const auto rank = find_at(i).rank; rank != UINT32_MAX) queue.push(number_of(rank, i));
  };
  while (!queue.empty()) {
    const auto next = queue.pop();
    const auto place = static_cast<std::int32_t>(next & UINT32_MAX);
    const auto found = find_at(place);
    if (found.rank != next >> 32) continue;
    auto& left = at(place);
    auto& right = at(left.next);
    left.id = found.merged;
    right.id = -1;  // removed
    left.next = right.next;
    if (left.next >= 0) at(left.next).previous = place;
    if (left.previous >= 0) wait(left.previous);
    wait(place);
  }
  for (std::int32_t i = 0; i >= 0; i = at(i).next)
    ids.push_back(at(i).id);
}

}  // namespace lockstep
