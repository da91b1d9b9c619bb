#include "data/tokenizer/bpe.h"

#include <gtest/gtest.h>
#include <random>
#include <set>

#include "tests/wording.h"

namespace lockstep::testing::bpe_test {

struct Rules {
  std::unordered_map<std::string, std::int32_t> tokens;
  std::vector<Bpe::Merge> merges;
  std::vector<std::string> bytes;
};

// Bytes, and `count` random merges of what there is so far.
Rules random_rules(std::mt19937& random, int count, int letters) {
  Rules rules;
  for (int byte = 0; byte < 256; ++byte) {
    rules.bytes.emplace_back(1, static_cast<char>(byte));
    rules.tokens[rules.bytes.back()] = byte;
  }
  std::vector<std::int32_t> pool;
  for (int i = 0; i < letters; ++i)
    pool.push_back('a' + i);
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  while (static_cast<int>(rules.merges.size()) < count) {
    const auto left = pool[random() % pool.size()], right = pool[random() % pool.size()];
    const auto text =
        rules.bytes[static_cast<std::size_t>(left)] + rules.bytes[static_cast<std::size_t>(right)];
    if (!pairs.insert({left, right}).second || text.size() > 40) continue;
    // Two merges may make one token, as in real vocabularies.
    const auto made = rules.tokens.emplace(text, static_cast<std::int32_t>(rules.bytes.size()));
    if (made.second) {
      rules.bytes.push_back(text);
      pool.push_back(made.first->second);
    }
    const auto rank = static_cast<std::uint32_t>(rules.merges.size());
    rules.merges.push_back({left, right, made.first->second, rank});
  }
  return rules;
}

// As the paper has it: again and again the first merge of the list that applies, at the leftmost
// place.
std::vector<std::int32_t> reference(const Rules& rules, const std::string& word) {
  std::vector<std::int32_t> ids;
  for (const char c : word)
    ids.push_back(static_cast<unsigned char>(c));
  for (bool merged = true; merged;) {
    merged = false;
    for (const auto& merge : rules.merges) {
      for (std::size_t i = 0; i + 1 < ids.size() && !merged; ++i)
        if (ids[i] == merge.left && ids[i + 1] == merge.right) {
          ids[i] = merge.merged;
          ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          merged = true;
        }
      if (merged) break;
    }
  }
  return ids;
}

std::vector<std::int32_t> encode(const Bpe& bpe, const std::string& word, Bpe::Memory& memory) {
  std::vector<std::int32_t> ids;
  bpe.encode(word, ids, memory);
  return ids;
}

TEST(Bpe, merges_in_the_order_of_the_list_for_any_length) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    const int letters = 1 + trial % 5;
    const auto rules = random_rules(random, 1 + trial, letters);
    const Bpe bpe(rules.tokens, rules.merges, false);
    Bpe::Memory memory;
    for (int i = 0; i < 60; ++i) {
      std::string word;  // short ones that the memory keeps, longer ones, and those of the queue
      for (auto n = 1 + random() % (i % 3 == 0 ? 8 : i % 3 == 1 ? 47 : 200); n > 0; --n)
        word.push_back(static_cast<char>('a' + random() % static_cast<unsigned>(letters)));
      const auto expected = reference(rules, word);
      ASSERT_EQ(encode(bpe, word, memory), expected) << word;
      ASSERT_EQ(encode(bpe, word, memory), expected) << "again: " << word;
    }
  }
}

TEST(Bpe, a_word_that_is_a_token_is_kept_whole_only_with_whole_words) {
  Rules rules;
  for (int byte = 0; byte < 256; ++byte)
    rules.tokens[std::string(1, static_cast<char>(byte))] = byte;
  const std::string longer(60, 'x');
  rules.tokens["abc"] = 300;  // no merge makes it
  rules.tokens[longer] = 301;
  Bpe::Memory memory, other;
  const Bpe merging(rules.tokens, {}, false), whole(rules.tokens, {}, true);
  EXPECT_EQ(encode(merging, "abc", memory), (std::vector<std::int32_t>{'a', 'b', 'c'}));
  EXPECT_EQ(encode(whole, "abc", other), std::vector<std::int32_t>{300});
  EXPECT_EQ(encode(whole, longer, other), std::vector<std::int32_t>{301});
  EXPECT_EQ(encode(whole, "", other), std::vector<std::int32_t>{});
}

// Words share places in the memory.
TEST(Bpe, the_memory_does_not_mix_up_words) {
  std::unordered_map<std::string, std::int32_t> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens[std::string(1, static_cast<char>(byte))] = byte;
  const Bpe bpe(tokens, {}, false);
  Bpe::Memory memory;
  std::mt19937 random(9);
  for (int i = 0; i < 400000; ++i) {
    std::string word;
    for (int n = 0; n < 8; ++n)
      word.push_back(static_cast<char>('a' + random() % 26));
    ASSERT_EQ(encode(bpe, word, memory).size(), 8u);
    word.pop_back();
    ASSERT_EQ(encode(bpe, word, memory).size(), 7u) << word;
  }
}

// Whatever the length of the word; nothing is left out silently.
TEST(Bpe, text_with_a_byte_without_a_token_is_an_error) {
  const Bpe bpe({{"a", 0}, {"b", 1}, {"ab", 2}, {"axb", 3}}, {{0, 1, 2, 0}}, true);
  Bpe::Memory memory;
  EXPECT_EQ(encode(bpe, "abab", memory), (std::vector<std::int32_t>{2, 2}));
  EXPECT_EQ(encode(bpe, "axb", memory), std::vector<std::int32_t>{3});
  for (const auto& word :
       {std::string("x"), std::string("abx"), std::string(40, 'x'), std::string(100, 'a') + "x"}) {
    expect_refusal<DataError>("data/bpe", "a byte without a token", {"120", "0x78"},
                              [&, word = word] { encode(bpe, word, memory); });
  }
}

// What the package `tokenizers` 0.23.3 makes of these words: neighbours of a dropped byte are a
// pair.
TEST(Bpe, bytes_without_a_token_are_dropped_and_counted_each_time) {
  const Bpe bpe({{"a", 0}, {"b", 1}, {"ab", 2}, {"aa", 9}, {"aaaa", 10}, {"aaaaaaaa", 11}},
                {{0, 1, 2, 0}, {0, 0, 9, 1}, {9, 9, 10, 2}, {10, 10, 11, 3}}, false);
  EXPECT_EQ(bpe.missing_bytes().size(), 254u);
  Bpe::Memory memory(MissingBytes::drop);
  std::string pairs = "x";
  for (int i = 0; i < 8; ++i)
    pairs += "axbx";
  const std::string run(30, 'a');
  const auto parted = str(run, "x", run);
  using Ids = std::vector<std::int32_t>;
  for (const auto& [word, ids, dropped] : std::vector<std::tuple<std::string, Ids, int>>{
           {"ab", {2}, 0},
           {"axb", {2}, 1},
           {"axxb", {2}, 2},
           {"x", {}, 1},
           {pairs, Ids(8, 2), 17},
           {parted, {11, 11, 11, 11, 11, 11, 11, 10}, 1}})
    for (int again = 0; again < 2; ++again) {
      memory.missing = 0;
      EXPECT_EQ(encode(bpe, word, memory), ids) << word;
      EXPECT_EQ(memory.missing, dropped) << word;
    }
}

// Of a merge that is there twice the later, as the package `tokenizers` has it.
TEST(Bpe, the_last_of_repeated_merges_counts) {
  const std::unordered_map<std::string, std::int32_t> tokens{
      {"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}};
  Bpe::Memory memory;
  const Bpe::Merge ab{0, 1, 3, 0}, bc{1, 2, 4, 1}, again{0, 1, 3, 2};
  EXPECT_EQ(encode(Bpe(tokens, {ab, bc, again}, false), "abc", memory),
            (std::vector<std::int32_t>{0, 4}));
  Bpe::Memory other;
  EXPECT_EQ(encode(Bpe(tokens, {ab, bc}, false), "abc", other), (std::vector<std::int32_t>{3, 2}));
}

// A minute and more where a merge costs the length of the word; milliseconds where it does not.
TEST(Bpe, a_word_of_a_megabyte_is_not_quadratic) {
  std::mt19937 random(5);
  const auto rules = random_rules(random, 200, 3);
  const Bpe bpe(rules.tokens, rules.merges, false);
  Bpe::Memory memory;
  std::string word;
  for (int i = 0; i < 1 << 20; ++i)
    word.push_back(static_cast<char>('a' + random() % 3));
  const auto ids = encode(bpe, word, memory);
  std::string back;
  for (const auto id : ids)
    back += rules.bytes[static_cast<std::size_t>(id)];
  EXPECT_EQ(back, word);
}

}  // namespace lockstep::testing::bpe_test
