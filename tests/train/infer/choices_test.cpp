// Multiple-choice questions, compared with the scores of lm_eval in tests/oracle/fixtures/choices
// (made by tests/oracle/make_choices_fixture.py).
#include <cmath>
#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/data/shards.h"
#include "tests/support/thread_world.h"
#include "tests/train/log.h"
#include "train/infer/evaluate.h"
#include "train/infer/evaluate_choices.h"
#include "train/interop/model_tokenizer.h"

namespace lockstep::testing::choices_test {

constexpr const char* kReader = "train/choices";
const std::string kFixture = LOCKSTEP_FIXTURES "/choices";

std::vector<Question> parse(const std::string& text, const std::string& what = "q.jsonl") {
  InputDefects odd;
  return parse_questions(text, what, odd);
}

TEST(Questions, are_lines_of_json) {
  const auto questions = parse(
      "{\"context\":\"a \",\"choices\":[\"b\",\"c\"],\"label\":1,\"id\":\"x\"}\r\n\n"
      "{\"choice_contexts\":[\"d\",\"e\"],\"choices\":[\"f\",\"f\"],\"label\":0,\"more\":[]}",
      "q");
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].context(1), "a ");
  EXPECT_EQ(questions[0].id, "x");
  EXPECT_EQ(questions[0].label, 1u);
  EXPECT_EQ(questions[1].line, 3);
  EXPECT_EQ(questions[1].context(1), "e");
  EXPECT_EQ(questions[1].id, "1");
}

TEST(Questions, with_errors_are_named_by_line_and_member) {
  const std::string good = R"({"context":"a","choices":["b","c"],"label":1})";
  const std::pair<const char*, const char*> lines[] = {
      {R"({"choices":["b","c"],"label":1})", "\"context\""},
      {R"({"context":7,"choices":["b","c"],"label":1})", "context: "},
      {R"({"context":"","choices":["b"],"label":0})", "choices: "},
      {R"({"context":"","choices":"b","label":0})", "choices: "},
      {R"({"context":"","choices":["b","c"],"label":2})", "label"},
      {R"({"context":"","choices":["b","c"],"label":NaN})", "\"label\""},
      {R"({"choice_contexts":["d"],"choices":["f","f"],"label":0})", "choice_contexts: "},
      {R"({"context":"","choice_contexts":["d","e"],"choices":["f","f"],"label":0})",
       "choice_contexts"},
      {R"({"context":)", "at byte "}};
  for (const auto& [line, pin] : lines)
    expect_refusal<DataError>(kReader, line, {"q.jsonl: line 3: ", pin},
                              [&, text = line] { parse(good + "\n\n" + text); });
  expect_refusal<DataError>(kReader, "no line", {"q.jsonl"}, [] { parse("\n\n"); });
}

std::string text_of(const std::vector<std::int32_t>& ids) {
  return ByteTokenizer().decode(ids, Tokenizer::Specials::named);
}

TEST(ChoiceEncoder, moves_whitespace_at_the_contexts_end_to_the_choice) {
  const ByteTokenizer bytes;
  ChoiceEncoder encoder(bytes, /*document_start=*/false);
  for (const std::string space : {" ", "\n\t ", "\xc2\xa0", "\xe3\x80\x80", "\x1c", ""}) {
    const auto encoded = encoder.encode("a b" + space, "c");
    EXPECT_EQ(text_of(encoded.context), "a b");
    EXPECT_EQ(text_of(encoded.choice), space + "c");
  }
  EXPECT_EQ(encoder.encode(" ", "c").context, std::vector<std::int32_t>{256});
  EXPECT_EQ(text_of(encoder.encode(" ", "c").choice), " c");
  EXPECT_EQ(text_of(encoder.encode("\xa0", "c").choice), "c");  // no character
  ChoiceEncoder starts(bytes, /*document_start=*/true);
  EXPECT_EQ(starts.encode("a", "c").context, (std::vector<std::int32_t>{256, 'a'}));
  EXPECT_TRUE(encoder.encode("a", "").choice.empty());
}

// Same as lm_eval's HFLM.tok_encode with has_bos_prefix, and its loglikelihood of an empty context.
TEST(ChoiceEncoder, puts_the_document_token_in_front_once) {
  const auto tokenizer = open_tokenizer(kFixture);
  const std::string start = "<|endoftext|>";
  const std::vector<std::int32_t> document{tokenizer->about().document_token};
  const auto with_document = [&](const std::string& text) {
    auto ids = document;
    for (const auto id : tokenizer->encode(text))
      ids.push_back(id);
    return ids;
  };
  for (const bool document_start : {false, true}) {
    ChoiceEncoder encoder(*tokenizer, document_start);
    EXPECT_EQ(encoder.encode(start + "A man", " x").context, with_document("A man"));
    EXPECT_EQ(encoder.encode(start + "A man", " x").choice, tokenizer->encode(" x"));
    EXPECT_EQ(encoder.encode(start, "x").context, document);
    EXPECT_EQ(encoder.encode(start, "x").choice, tokenizer->encode("x"));
    EXPECT_EQ(encoder.encode("", start + "x").context, document);
    EXPECT_EQ(encoder.encode("", start + "x").choice, tokenizer->encode("x"));
    EXPECT_TRUE(encoder.encode("", start).choice.empty());
  }
  EXPECT_EQ(ChoiceEncoder(*tokenizer, true).encode("A man", " x").context, with_document("A man"));
}

TEST(Questions, that_are_irregular_are_accepted_and_counted) {
  InputDefects odd;
  const auto questions = parse_questions(
      "{\"context\":\"a\\udfff\",\"choices\":[\"b\",\"\\ud800\"],\"label\":1,\"score\":[NaN,-"
      "Infinity]}",
      "q.jsonl", odd);
  EXPECT_EQ(questions[0].context(0), "a\xef\xbf\xbd");
  EXPECT_EQ(questions[0].choices[1], "\xef\xbf\xbd");
  EXPECT_EQ(odd.text.count, 2);
  EXPECT_EQ(odd.numbers.count, 2);
}

TEST(Choices, the_first_of_equal_choices_wins) {
  const std::vector<ChoiceScore> scores{{-3, 3, 2, 2}, {-2, 2, 1, 4}, {-2, 1, 1, 4}};
  EXPECT_EQ(best_choice(scores, Normalised::none), 1u);
  EXPECT_EQ(best_choice(scores, Normalised::by_characters), 0u);
  EXPECT_EQ(best_choice(scores, Normalised::by_bytes), 1u);
  EXPECT_EQ(best_choice(scores, Normalised::by_tokens), 0u);
}

struct Fixture {
  ModelSource source = find_model(kFixture);
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer_of(source, "");
  Json expected = Json::parse(read_text(kFixture + "/expected.json", 1 << 20), "expected.json");

  ChoicesEvaluation evaluate(const ModelRanks& ranks, std::int64_t batch = 0) const {
    Stream stream(Device{}, "compute", Stream::Mode::immediate, 2);
    return evaluate_choices(
        source, {.file = kFixture + "/questions.jsonl", .tokenizer = *tokenizer, .batch = batch},
        ranks, stream);
  }

  // Both sides use fp32, for sums of a few hundred terms and of up to 60 tokens.
  void expect_scores(const ChoicesEvaluation& result) const {
    const auto& logp = expected.at("logp").as_array();
    ASSERT_EQ(result.questions.size(), logp.size());
    for (std::size_t i = 0; i < logp.size(); ++i) {
      const auto& choices = logp[i].as_array();
      ASSERT_EQ(result.scores[i].size(), choices.size());
      for (std::size_t k = 0; k < choices.size(); ++k)
        ASSERT_NEAR(result.scores[i][k].logp, choices[k].as_double(),
                    2e-6 * std::abs(choices[k].as_double()) + 2e-5)
            << "line " << result.questions[i].line << ", choice " << k;
    }
  }
  void expect_share(const ChoicesEvaluation& result, const std::string& name, Normalised by) const {
    const auto share = share_correct(result.questions, result.scores, by);
    EXPECT_DOUBLE_EQ(share.mean, expected.at(name).as_double()) << name;
    EXPECT_NEAR(share.standard_error, expected.at(name + "_stderr").as_double(), 1e-12) << name;
  }
};

TEST(Choices, have_the_scores_of_lm_eval) {
  const Fixture fixture;
  LoneWorld alone;
  for (const std::int64_t batch : {0, 1, 3}) {
    const auto result = fixture.evaluate({alone}, batch);
    fixture.expect_scores(result);
    fixture.expect_share(result, "acc", Normalised::none);
    fixture.expect_share(result, "acc_norm", Normalised::by_characters);
    fixture.expect_share(result, "acc_bytes", Normalised::by_bytes);
    EXPECT_EQ(result.cut, 3);  // the number of lm_eval's warnings
  }
}

// One of its choices adds no token, or has too many. lm_eval 0.4.13 fails with an assertion then.
TEST(Choices, a_question_that_cannot_be_scored_is_skipped_and_counted) {
  const Fixture fixture;
  const TemporaryDirectory directory;
  const auto file = (directory / "q.jsonl").string();
  const std::string good = R"({"context": "A man", "choices": [" runs", " dog"], "label": 0})";
  const std::string none = R"({"context": "", "choices": ["x", "<|endoftext|>"], "label": 0})";
  const auto evaluate = [&](const std::string& text) {
    spit(file, text);
    LoneWorld alone;
    Stream stream(Device{}, "compute", Stream::Mode::immediate, 2);
    return evaluate_choices(fixture.source, {.file = file, .tokenizer = *fixture.tokenizer},
                            {alone}, stream);
  };
  std::string knives;
  for (int i = 0; i < 90; ++i)
    knives += "knife ";
  const auto is_long = R"({"context": "a", "choices": ["b", ")" + knives + R"("], "label": 0})";
  // Whitespace at the end of the context moves to the choice, and is a token here.
  const std::string empty = R"({"context": "A man ", "choices": ["", " runs"], "label": 0})";
  std::optional<ChoicesEvaluation> some;
  expect_log(kReader, "skipped questions", {"3", "5", file + ": line 1: choices: "}, [&] {
    some.emplace(evaluate(str(none, "\n", good, "\n", is_long, "\n", good, "\n", empty, "\n")));
  });
  const auto& all = *some;
  const auto alone = evaluate(good);
  ASSERT_EQ(all.questions.size(), 2u);
  EXPECT_EQ(all.questions[1].line, 4);
  for (std::size_t k = 0; k < 2; ++k)
    EXPECT_NEAR(all.scores[1][k].logp, alone.scores[0][k].logp, 1e-5);
  ASSERT_EQ(all.skipped.size(), 3u);
  EXPECT_EQ(all.skipped[0].question.line, 1);
  const char* pins[] = {"choices: number 1", "64", "choices: number 0"};
  for (std::size_t i = 0; i < 3; ++i) {
    expect_contains(all.skipped[i].why, pins[i]);
    expect_wording(kReader, str("skipped because of ", pins[i]), all.skipped[i].why);
  }
  expect_refusal<DataError>(kReader, "no question can be scored",
                            {file + ": ", "line 1: choices: number 1"}, [&] { evaluate(none); });
}

class ChoicesOn : public ::testing::TestWithParam<Mesh> {};

TEST_P(ChoicesOn, any_layout_have_the_scores_of_lm_eval) {
  const Fixture fixture;
  run_thread_ranks(GetParam().world(), [&](World& world) {
    fixture.expect_scores(fixture.evaluate({world, GetParam()}, 4));
  });
}

// Loss and bytes of random tokens.
Evaluation evaluate_tokens(const Fixture& fixture, const std::string& data,
                           const ModelRanks& ranks) {
  Stream stream(Device{}, "compute", Stream::Mode::immediate, 2);
  return evaluate(fixture.source,
                  {.datasets = {data},
                   .sequence_length = 16,
                   .micro_batch = 4,
                   .tokenizer = fixture.tokenizer.get()},
                  ranks, stream);
}

TEST_P(ChoicesOn, any_layout_have_the_loss_of_one_rank) {
  const Fixture fixture;
  const TemporaryDirectory directory;
  const auto tokens = random_tokens(16 * 21 + 1, fixture.tokenizer->about().vocabulary);
  const auto data = directory / "tokens.bin";
  spit(data, gpt2_shard(tokens));
  std::int64_t bytes = 0;
  for (std::size_t i = 1; i < tokens.size(); ++i)
    bytes += std::ssize(fixture.tokenizer->decode({&tokens[i], 1}));
  LoneWorld alone;
  const auto one = evaluate_tokens(fixture, data, {alone});
  EXPECT_EQ(one.tokens, 16 * 21);
  EXPECT_EQ(one.bytes, bytes);
  run_thread_ranks(GetParam().world(), [&](World& world) {
    const auto result = evaluate_tokens(fixture, data, {world, GetParam()});
    EXPECT_EQ(result.tokens, one.tokens);
    EXPECT_EQ(result.bytes, bytes);
    EXPECT_NEAR(result.loss, one.loss, 1e-5 * one.loss);
  });
}

INSTANTIATE_TEST_SUITE_P(all, ChoicesOn,
                         ::testing::Values(Mesh{.replicate = 2}, Mesh{.replicate = 3},
                                           Mesh{.shard = 2}, Mesh{.tensor = 2},
                                           Mesh{.shard = 2, .tensor = 2},
                                           Mesh{.replicate = 2, .shard = 2}),
                         [](const auto& p) {
                           return str("r", p.param.replicate, "_s", p.param.shard, "_t",
                                      p.param.tensor);
                         });

}  // namespace lockstep::testing::choices_test
