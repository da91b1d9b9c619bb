// The fixtures are small tokenizers with the settings of each family, and the ids that the package
// `tokenizers` gives with them (tokenizers_agree.py --fixtures).
#include "data/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "core/file.h"
#include "core/json.h"
#include "core/utf8.h"
#include "data/tokenizer/tokenizer_files.h"
#include "tests/wording.h"

namespace lockstep::testing::bpe_tokenizer_test {

namespace fs = std::filesystem;

const fs::path kTokenizers = LOCKSTEP_TOKENIZERS;
constexpr std::int64_t kMostBytes = 1 << 24;

struct Example {
  std::string text, decoded;
  std::vector<std::int32_t> ids;
};

class BpeTokenizerTest : public ::testing::TestWithParam<const char*> {
 protected:
  BpeTokenizerTest() : tokenizer_(open_tokenizer((kTokenizers / GetParam()).string())) {
    const auto path = kTokenizers / GetParam() / "ids.json";
    const Json json = Json::parse(read_text(path, kMostBytes), path.string());
    for (const auto& one : json.as_array()) {
      auto& example = examples_.emplace_back();
      example.text = text_at(one, "text");
      example.decoded = text_at(one, "decoded");
      for (const auto& id : one.at("ids").as_array())
        example.ids.push_back(static_cast<std::int32_t>(id.as_integer()));
    }
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<Example> examples_;
};

TEST_P(BpeTokenizerTest, has_the_ids_and_texts_of_the_package) {
  ASSERT_GT(examples_.size(), 100u);
  for (const auto& example : examples_) {
    EXPECT_EQ(tokenizer_->encode(example.text), example.ids) << example.text;
    EXPECT_EQ(replaced_utf8(tokenizer_->decode(example.ids, Tokenizer::Specials::named)),
              example.decoded);
  }
  const auto& about = tokenizer_->about();
  for (const std::int32_t id : {-1, about.vocabulary, std::numeric_limits<std::int32_t>::max()}) {
    EXPECT_EQ(tokenizer_->bytes_of(id), "");
    EXPECT_FALSE(tokenizer_->is_special(id));
  }
}

TEST_P(BpeTokenizerTest, many_threads_share_a_tokenizer) {
  std::vector<std::thread> threads;
  std::vector<std::size_t> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      Tokenizer::Memory memory;
      for (std::size_t i = 0; i < examples_.size(); ++i) {
        const auto& example = examples_[(i + 31 * t) % examples_.size()];
        std::vector<std::int32_t> ids;
        tokenizer_->encode(example.text, ids, memory);
        if (ids != example.ids) ++wrong[t];
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, std::vector<std::size_t>(4));
}

// Random texts of what a cut could break: letters and spaces beside everything else.
std::string draw(std::mt19937& random) {
  // clang-format off
  static constexpr const char* kPieces[] = {
      "a", "B", "word", " ", "  ", "\n", "\r\n", "'s", "'", "1", "23", ".", "--", "\t", "\xc3\xa9",
      "<|", "|>", "a ", "b c", " d", "x y ", "\xcc\x81", "\xff", "->", "<r>", "lone", "\xc2\xa0",
      "<|endoftext|>", "<think>", "\xe3\x80\x80", "the cat", "\xe4\xba\xba", " \xd0\xb4",
      "\n\xe4\xba\xba", "\xe1\x84\x80", "\xe1\x85\xa1", "\n", "x\n", "\xef\xb9\xb0",
      "\xe2\x80\x83"};
  // clang-format on
  std::string text;
  for (auto n = 1 + random() % 30; n > 0; --n)
    text += kPieces[random() % std::size(kPieces)];
  return text;
}

TEST_P(BpeTokenizerTest, splitting_at_a_cut_changes_no_token) {
  std::mt19937 random(11);
  Tokenizer::Memory memory;
  const auto encode = [&](std::string_view text) {
    std::vector<std::int32_t> ids;
    tokenizer_->encode(text, ids, memory);
    return ids;
  };
  int cuts = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto text = draw(random);
    const auto cut = tokenizer_->last_cut(text);
    if (cut == 0) continue;
    ++cuts;
    // Whatever follows.
    for (const auto& whole : {text, text + draw(random)}) {
      auto ids = encode(std::string_view(whole).substr(0, cut));
      const auto behind = encode(std::string_view(whole).substr(cut));
      ids.insert(ids.end(), behind.begin(), behind.end());
      ASSERT_EQ(ids, encode(whole)) << whole << "\ncut at " << cut;
    }
  }
  constexpr std::string_view kUncut[] = {"other", "llama2", "mistral", "gemma"};
  const bool cannot_tell =
      std::find(std::begin(kUncut), std::end(kUncut), GetParam()) != std::end(kUncut);
  EXPECT_EQ(cuts == 0, cannot_tell) << cuts;
}

TEST(BpeTokenizer, cuts_are_at_words_and_lines_of_any_script) {
  const auto tokenizer = open_tokenizer((kTokenizers / "llama3").string());
  EXPECT_EQ(tokenizer->last_cut("one two three"), 7u);
  EXPECT_EQ(tokenizer->last_cut("one  two 3"), 4u);
  EXPECT_EQ(tokenizer->last_cut("\xe4\xba\xba\n\xe4\xba\xba"), 4u);  // Han
  EXPECT_EQ(tokenizer->last_cut("a\n\nb"), 0u);  // one token or two, by what is beyond
  EXPECT_EQ(tokenizer->last_cut("a\r\nb"), 0u);
  EXPECT_EQ(tokenizer->last_cut(" a"), 0u);
  EXPECT_EQ(tokenizer->last_cut(""), 0u);
}

TEST(BpeTokenizer, there_is_no_cut_that_may_change_a_token) {
  const auto path = kTokenizers / "gpt2" / "tokenizer.json";
  const auto json = parse_tokenizer(read_text(path, kMostBytes), path.string());
  const auto made = [](const BpeDefinition& of) {
    return BpeTokenizer(of, {.name = "", .hash = "", .vocabulary = of.vocabulary()});
  };
  using Change = std::function<void(BpeDefinition&)>;
  const auto last_cut = [&](const Change& change) {
    auto changed = json;
    change(changed);
    return made(changed).last_cut("one two");
  };
  const Change cut[] = {
      [](auto&) {},
      [](auto& j) { j.added[0].content = "one\xc2\xa0two"; },  // with a space, in this form
      [](auto& j) { j.steps.insert(j.steps.begin(), {.pattern = R"(\p{N})"}); }};
  for (const auto& change : cut)
    EXPECT_EQ(last_cut(change), 3u) << &change - cut;
  const Change uncut[] = {[](auto& j) { j.added[0].lstrip = true; },
                          [](auto& j) { j.added[0].rstrip = true; },
                          [](auto& j) { j.added[0].content = "one two"; },
                          [](auto& j) {
                            j.added[0].content = "one\xc2\xa0two";
                            j.added[0].normalized = true;
                            j.normalizers = {{.form = NormalForm::nfkc}};
                          },
                          [](auto& j) { j.steps[0].pattern = R"(\w+ ?)"; },
                          [](auto& j) { j.steps[0].pattern = R"(\p{N})"; },  // leaves words whole
                          [](auto& j) { j.steps.clear(); }};
  for (const auto& change : uncut)
    EXPECT_EQ(last_cut(change), 0u) << &change - uncut;
  auto changed = json;
  changed.added[0].content = "two";
  const auto tokenizer = made(changed);
  for (const std::string text : {"one two", "one  two", "one\n two", "one\ntwo"}) {
    const auto place = tokenizer.last_cut(text);
    auto ids = tokenizer.encode(text.substr(0, place));
    for (const auto id : tokenizer.encode(text.substr(place)))
      ids.push_back(id);
    EXPECT_EQ(ids, tokenizer.encode(text)) << text << ", cut at " << place;
  }
}

TEST(BpeTokenizer, a_replace_that_matches_nothing_or_grows_without_limit_is_an_error) {
  const auto path = kTokenizers / "llama2" / "tokenizer.json";
  const auto json = parse_tokenizer(read_text(path, kMostBytes), path.string());
  using Normalizer = BpeDefinition::Normalizer;
  const auto expect_refused = [&](const std::string& pattern, int times, bool decodes) {
    auto changed = json;
    auto& changes = decodes ? changed.decoded : changed.normalizers;
    changes.assign(
        static_cast<std::size_t>(times),
        {.kind = Normalizer::Kind::replace, .pattern = pattern, .content = std::string(1000, 'a')});
    expect_refusal<DataError>(
        "data/bpe_tokenizer", str(decodes ? "decoder " : "normalizer ", pattern), {"Replace"}, [&] {
          const BpeTokenizer tokenizer(
              changed, {.name = "", .hash = "", .vocabulary = changed.vocabulary()});
          tokenizer.encode(std::string(1000, 'a'));
        });
  };
  for (const char* pattern : {"^", "\\A", "$", " *", "(?=X)", ""})
    expect_refused(pattern, 1, false);
  expect_refused("a", 3, false);
  expect_refused("a", 3, true);
}

// As the package transformers writes it of a SentencePiece model.
TEST(BpeTokenizer, a_pattern_for_the_start_of_a_text_matches_nothing_after_text) {
  const Normalizers normalizers(
      {{.kind = BpeDefinition::Normalizer::Kind::replace, .pattern = R"(\A_)", .content = "__"}},
      "normalizer");
  EXPECT_EQ(normalizers.apply("_a_", Bpe::Place::front), "__a_");
  EXPECT_EQ(normalizers.apply("_a_", Bpe::Place::behind_token), "__a_");
  EXPECT_EQ(normalizers.apply("_a_", Bpe::Place::behind_text), "_a_");
}

INSTANTIATE_TEST_SUITE_P(families, BpeTokenizerTest,
                         ::testing::Values("gpt2", "llama3", "qwen3", "smollm2", "smollm3", "other",
                                           "llama2", "mistral", "gemma"),
                         [](const auto& family) { return std::string(family.param); });

TEST(BpeTokenizer, special_tokens_are_left_out_or_named_in_decoded_text) {
  const auto tokenizer = open_tokenizer((kTokenizers / "qwen3").string());
  const auto ids = tokenizer->encode("<|im_start|>user<think>");
  EXPECT_EQ(tokenizer->decode(ids, Tokenizer::Specials::named), "<|im_start|>user<think>");
  EXPECT_EQ(tokenizer->decode(ids), "user<think>");  // added, but not special
}

TEST(BpeTokenizer, invalid_utf8_becomes_a_replacement_character) {
  const auto tokenizer = open_tokenizer((kTokenizers / "gpt2").string());
  EXPECT_EQ(tokenizer->encode("a\xff"
                              "b"),
            tokenizer->encode("a\xef\xbf\xbd"
                              "b"));
}

}  // namespace lockstep::testing::bpe_tokenizer_test
