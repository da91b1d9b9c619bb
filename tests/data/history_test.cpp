// What a run reads of which sample when its mixture changes on the way.
#include "data/history.h"

#include <gtest/gtest.h>

#include "tests/wording.h"

namespace lockstep::testing::history_test {

using Sources = std::vector<Stretch::Source>;
constexpr std::int64_t kLength = 32;

Stretch::Source source(const std::string& name, std::int64_t weight, std::int64_t seed = 9) {
  return {.name = name, .fingerprint = "f" + name, .seed = seed, .weight = weight, .counter = 0};
}
DataHistory start(const Sources& sources) {
  return {{.first_sample = 0, .length = kLength, .sources = sources}};
}
DataHistory continued(const DataHistory& history, std::int64_t sample, const Sources& now,
                      bool allow_dataset_change, std::int64_t length = kLength) {
  const auto carry = [&](const Stretch::Source& source, std::int64_t before) {
    return carried_over(source.counter, RowKind::windows, {6400 / before, before},
                        {6400 / length, length});
  };
  return lockstep::continued(history, sample, {.length = length, .sources = now}, carry,
                             allow_dataset_change);
}

TEST(DataHistory, an_unchanged_history_continues) {
  const auto history = start({source("a", 3), source("b", 1)});
  EXPECT_EQ(continued(history, 100, history.back().sources, false), history);
  auto elsewhere = history.back().sources;  // another place and order of the tables, the same data
  std::swap(elsewhere[0], elsewhere[1]);
  for (auto& one : elsewhere)
    one.name = "/moved/" + one.name;
  EXPECT_EQ(continued(history, 100, elsewhere, false), history);
}

TEST(DataHistory, a_new_weight_or_source_applies_from_the_current_sample) {
  auto history = start({source("a", 3), source("b", 1)});
  history = continued(history, 100, {source("a", 1), source("b", 1), source("c", 2, 7)}, false);
  ASSERT_EQ(history.size(), 2u);
  EXPECT_EQ(history[1].first_sample, 100);
  EXPECT_EQ(history[1].sources[0].counter, 75);
  EXPECT_EQ(history[1].sources[1].counter, 25);
  EXPECT_EQ(history[1].sources[2].counter, 0);
  EXPECT_EQ(history[1].sources[2].seed, 7);
  // b is taken away, and comes back where it was.
  history = continued(history, 140, {source("a", 1), source("c", 1)}, false);
  EXPECT_EQ(history[2].sources[0].counter, 75 + 10);
  EXPECT_EQ(history[2].sources[1].counter, 20);
  history = continued(history, 150, {source("b", 1, 55)}, true);
  EXPECT_EQ(history[3].sources[0].counter, 25 + 10);
  EXPECT_EQ(history[3].sources[0].seed, 9) << "its order is that of before";
  // Changed again before a step: what was never read leaves no trace.
  const auto again = continued(history, 150, {source("a", 1)}, true);
  ASSERT_EQ(again.size(), 4u);
  EXPECT_EQ(again[3].sources[0].counter, 75 + 10 + 5);
}

template <class E = ConfigError, class Act>
void expect_refused(const std::string& name, std::initializer_list<std::string> pins,
                    const Act& act) {
  expect_refusal<E>("data/history", name, pins, act);
}

TEST(DataHistory, other_data_of_a_source_are_an_error_unless_allowed) {
  const auto history = start({source("a", 3), source("b", 1)});
  auto changed = history.back().sources;
  changed[1].fingerprint = "other";
  expect_refused("other data of a source",
                 {" b ", "sample 100 ", "other", "fb", "--allow-dataset-change"},
                 [&] { continued(history, 100, changed, false); });
  const auto allowed = continued(history, 100, changed, true);
  EXPECT_EQ(allowed.back().first_sample, 100);
  EXPECT_EQ(allowed.back().sources[1].counter, 25);
  // The one dataset of a run is the one dataset of the run, wherever it is.
  const auto one = start({source("a", 1)});
  expect_refused("other data of the one dataset", {" b ", "sample 5 "},
                 [&] { continued(one, 5, {source("b", 1)}, false); });
  EXPECT_EQ(continued(one, 5, {source("b", 1)}, true).back().sources[0].counter, 5);
  EXPECT_EQ(continued(one, 5, {source("b", 1), source("a", 1)}, false).back().sources[0].counter,
            0);
}

TEST(DataHistory, data_without_a_previous_source_are_an_error_unless_allowed) {
  const auto one = start({source("a", 1)}), two = start({source("a", 3), source("b", 1)});
  const Sources c{source("c", 1)}, now{source("c", 1), source("d", 1)};
  expect_refused("one source, then two others", {"sample 100:", " a, ", " c, d;"},
                 [&] { continued(one, 100, now, false); });
  expect_refused("two sources, then two others", {"sample 100:", " a, b, ", " c, d;"},
                 [&] { continued(two, 100, now, false); });
  expect_refused("two sources, then another", {" a, b, ", " c;"},
                 [&] { continued(two, 100, c, false); });
  const auto allowed = continued(two, 100, now, true);
  EXPECT_EQ(allowed.back().sources, now);
  // What was read earlier, but not last, is no exception; one that stays is.
  expect_refused("two sources, then an earlier one", {" c, d, ", " a;"},
                 [&] { continued(allowed, 110, one[0].sources, false); });
  EXPECT_EQ(continued(two, 100, {source("c", 1), source("b", 1)}, false).size(), 2u);
}

TEST(DataHistory, two_histories_agree_up_to_the_first_change) {
  const auto one = start({source("a", 1)});
  const auto two = continued(one, 100, {source("a", 1), source("b", 1)}, false);
  for (const auto sample : {0, 1, 99, 100}) {
    EXPECT_TRUE(agree_before(sample, one, two)) << sample;
    EXPECT_TRUE(agree_before(sample, two, one)) << sample;
  }
  EXPECT_FALSE(agree_before(101, one, two));
  EXPECT_FALSE(agree_before(101, two, one));
  EXPECT_FALSE(agree_before(1, one, start({source("a", 2)})));
}

TEST(DataHistory, json_keeps_all_values) {
  auto history = start({source("a", 3), source("b", std::int64_t{1} << 53)});
  history = continued(history, 1'000'000'000'000, {source("c", 2)}, true);
  Json data;
  data.set("stretches", to_json(history));
  EXPECT_EQ(history_in(Json::parse(data.dump(), "about")), history);
}

TEST(DataHistory, an_old_checkpoint_has_one_dataset) {
  const auto data = Json::parse(
      R"({"seed": 42, "first_sample": 64, "sequence_length": 32, "dataset": "d", "fingerprint": "fd"})",
      "about");
  const auto history = history_in(data);
  ASSERT_EQ(history.size(), 1u);
  EXPECT_EQ(history[0].length, 32);
  EXPECT_EQ(history[0].sources, (Sources{{"d", "fd", 42, std::int64_t{1} << 53, 0}}));
  const auto now = continued(history, 64, {source("d", 1, 3), source("e", 1, 4)}, false);
  EXPECT_EQ(now.back().sources[0].counter, 64);
  EXPECT_EQ(now.back().sources[0].seed, 42);
  EXPECT_EQ(now.back().sources[1].counter, 0);
}

TEST(DataHistory, a_new_length_applies_from_the_current_sample_and_sources_continue) {
  auto history = start({source("a", 3), source("b", 1)});  // 200 rows an epoch each
  const auto both = history.back().sources;
  EXPECT_EQ(continued(history, 1001, both, false), history);
  history = continued(history, 1001, both, false, 64);  // 100 rows
  ASSERT_EQ(history.size(), 2u);
  EXPECT_EQ(history[1].first_sample, 1001);
  EXPECT_EQ(history[1].length, 64);
  EXPECT_EQ(history[1].sources[0].counter, 3 * 100 + (151 + 1) / 2) << "751 rows of 32";
  EXPECT_EQ(history[1].sources[1].counter, 1 * 100 + 50 / 2) << "250 rows of 32";
  EXPECT_EQ(history[1].sources[0].seed, history[0].sources[0].seed);
  EXPECT_EQ(continued(history, 1100, both, false, 64), history);
  // b is away while the length changes again, and comes back from rows of 64.
  history = continued(history, 1101, {source("a", 1)}, false, 64);
  history = continued(history, 1110, {source("a", 1)}, false, 128);
  history = continued(history, 1120, both, false, 128);
  EXPECT_EQ(history[4].sources[1].counter, 1 * 50 + (25 + 25) / 2) << "150 rows of 64";
  Json data;
  data.set("stretches", to_json(history));
  EXPECT_EQ(history_in(Json::parse(data.dump(), "about")), history);
}

TEST(DataHistory, stretches_without_a_length_have_that_of_the_checkpoint) {
  auto data = Json::parse(
      R"({"stretches": [{"first_sample": 0, "sources": [{"name": "a", "fingerprint": "f", "seed": 1,
          "weight": 1, "counter": 0}]}], "sequence_length": 512})",
      "about");
  EXPECT_EQ(history_in(data)[0].length, 512);
  data.set("sequence_length", 0);
  expect_refused<DataError>("no length", {"sequence_length"}, [&] { history_in(data); });
}

// The fewest rows of now that hold the tokens of the rows that were read.
TEST(DataHistory, a_counter_is_converted_to_rows_of_another_length) {
  for (const std::int64_t tokens : {64, 65, 100, 1000})
    for (const std::int64_t T : {1, 3, 8, 32, 33})
      for (const std::int64_t now : {1, 2, 8, 31, 64})
        for (std::int64_t counter = 0; counter < 3 * tokens; counter += 1 + counter / 7) {
          const EpochRows a{tokens / T, T}, b{tokens / now, now};
          std::int64_t fewest = 0;
          while (fewest < b.count && fewest * now < counter % a.count * T)
            ++fewest;
          ASSERT_EQ(carried_over(counter, RowKind::windows, a, b),
                    counter / a.count * b.count + fewest)
              << counter << " rows of " << T << " of " << tokens << " tokens, now of " << now;
        }
  constexpr auto kMost = std::int64_t{1} << 62;
  EXPECT_EQ(
      carried_over(kMost / 4096 - 1, RowKind::windows, {kMost / 4096, 4096}, {kMost / 8192, 8192}),
      kMost / 8192);
  EXPECT_THROW(carried_over(kMost / 8, RowKind::windows, {1, 1024}, {1024, 1}), DataError);
  EXPECT_EQ(carried_over(205, RowKind::examples, {100, 32}, {100, 64}), 205);
  EXPECT_EQ(carried_over(205, RowKind::packed, {100, 32}, {45, 64}), 3 * 45);
  EXPECT_EQ(carried_over(200, RowKind::packed, {100, 32}, {45, 64}), 2 * 45);
}

TEST(DataHistory, invalid_histories_are_an_error) {
  const auto refused = [](const std::string& name, const std::string& stretches,
                          const std::string& pin) {
    const auto text = R"({"sequence_length": 32, "stretches": [)" + stretches + "]}";
    expect_refused<DataError>(name, {pin}, [&] { history_in(Json::parse(text, "about")); });
  };
  const std::string first = R"({"first_sample": 0, "sources": [)", end = "]}",
                    a = R"({"name": "a", "fingerprint": "f", "seed": 1, "counter": 0, "weight": )";
  refused("no stretch", "", "");
  refused("a first sample behind 0", R"({"first_sample": 1, "sources": [)" + a + "1}]}", "0");
  refused("no sources", first + end, "0 sources");
  refused("two of one sample", first + a + "1}]}, " + first + a + "1}]}", " 0");
  refused("too large a weight", first + a + "9000000000000000000}]}", "weight");
}

// The samples from 100 to 119 are skipped: sample 100 + i reads what sample 120 + i would have
// read.
TEST(DataHistory, a_skipped_range_is_never_read_and_what_follows_takes_its_place) {
  const auto whole = start({source("a", 3), source("b", 1)});
  const auto history = skipped(whole, 100, 120);
  ASSERT_EQ(history.size(), 2u);
  EXPECT_EQ(history[1].first_sample, 100);
  const auto before = whole[0].mixture().counts(120);
  for (std::size_t s = 0; s < 2; ++s)
    EXPECT_EQ(history[1].sources[s].counter, before[s]);
  EXPECT_TRUE(agree_before(100, history, whole));
  // Twice, and from the same sample on.
  EXPECT_EQ(skipped(history, 100, 140)[1].sources[0].counter, 90 + 30);
  EXPECT_THROW(skipped(history, 99, 130), ConfigError);
  // A later start derives the stretch again.
  EXPECT_EQ(history_before(100, history), whole);
  EXPECT_EQ(history_before(101, history), history);
  EXPECT_EQ(history_before(0, whole), whole) << "the first stretch stays";
}

}  // namespace lockstep::testing::history_test
