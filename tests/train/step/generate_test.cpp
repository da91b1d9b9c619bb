// Generation for several prompts together.
#include "model/generate.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "tests/train/training_rig.h"
#include "train/step/inference.h"

namespace lockstep::testing::generate_test {

using Texts = std::map<std::size_t, std::vector<std::int32_t>>;

struct Model {
  static constexpr std::int64_t kBytes = std::int64_t{64} << 20;
  ModelConfig config = [] {
    auto c = small_model(Family::llama3, 32, 4);
    c.kv_heads = 2;
    c.vocabulary = 41;
    c.max_positions = 96;
    c.init_std = 0.5f;  // texts that differ
    return c;
  }();
  Stream stream{Device{}, "compute", Stream::Mode::immediate, 2};
  Arenas arenas{Device{}, {kBytes, kBytes}};
  Inference inference{{.model = config}, stream, arenas};

  Model() { inference.params().initialize(stream, 5); }

  // stop: a token after which a text ends
  Texts run(std::span<const Prompt> prompts, const Sampling& sampling, std::int32_t stop = -1) {
    Texts texts;
    generate(inference.context(), inference.transformer(), arenas.pinned, prompts, sampling,
             [&](std::size_t prompt, std::int32_t token) {
               texts[prompt].push_back(token);
               return token != stop;
             });
    return texts;
  }
};

std::vector<Prompt> prompts_of(const std::vector<std::int64_t>& lengths, std::int64_t tokens) {
  std::vector<Prompt> prompts;
  for (const auto length : lengths) {
    Prompt prompt{.ids = {}, .tokens = tokens + std::ssize(prompts), .number = prompts.size()};
    for (std::int64_t i = 0; i < length; ++i)
      prompt.ids.push_back(static_cast<std::int32_t>((i * 7 + length) % 41));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::vector<std::int32_t> slice_of(const std::vector<std::int32_t>& text, std::size_t count) {
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(count)};
}

TEST(Generate, prompts_together_give_the_same_texts_as_alone) {
  Model model;
  const auto prompts = prompts_of({1, 30, 5, 61, 12, 2}, 17);
  for (const Sampling& sampling : {Sampling{.temperature = 0}, Sampling{.seed = 3}}) {
    const auto together = model.run(prompts, sampling);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto alone = model.run({&prompts[i], 1}, sampling).at(0);
      EXPECT_EQ(together.at(i), alone) << i;
      EXPECT_EQ(std::ssize(alone), prompts[i].tokens);
    }
  }
}

TEST(Generate, equal_prompts_draw_different_random_numbers) {
  Model model;
  auto prompts = prompts_of({5, 5}, 16);
  const auto drawn = model.run(prompts, {.seed = 3});
  EXPECT_NE(drawn.at(0), drawn.at(1));
  const auto likeliest = model.run(prompts, {.temperature = 0});
  EXPECT_EQ(likeliest.at(0), slice_of(likeliest.at(1), likeliest.at(0).size()));
}

TEST(Generate, a_text_that_ends_does_not_change_the_others) {
  Model model;
  const auto prompts = prompts_of({3, 9, 4}, 40);
  const auto all = model.run(prompts, {.seed = 9});
  const auto stop = all.at(1).at(6);
  const auto ended = model.run(prompts, {.seed = 9}, stop);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    auto expected = all.at(i);
    const auto end = std::find(expected.begin(), expected.end(), stop);
    if (end != expected.end()) expected.erase(end + 1, expected.end());
    EXPECT_EQ(ended.at(i), expected) << i;
  }
}

// The cache keeps what the prompts of two calls have in common.
TEST(Generate, a_kept_cache_gives_the_same_texts) {
  Model model;
  const auto step = model.inference.context();
  const Arena::Scope scope(step.scratch), pinned(model.arenas.pinned);
  Generator generator(step, model.inference.transformer(), model.arenas.pinned,
                      {.sequences = 2, .capacity = 90, .prefill = 90});
  auto prompts = prompts_of({30, 33}, 10);
  for (int call = 0; call < 4; ++call) {
    Texts kept;
    generator.run(prompts, {.temperature = 0}, [&](std::size_t prompt, std::int32_t token) {
      kept[prompt].push_back(token);
      return true;
    });
    EXPECT_EQ(kept, model.run(prompts, {.temperature = 0})) << call;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      auto& ids = prompts[i].ids;
      if (call == 0) ids.insert(ids.end(), kept.at(i).begin(), kept.at(i).end());
      if (call == 0) ids.insert(ids.end(), {3, 1, 4, 1, 5});  // goes on behind its text
      if (call == 1) ids[20 + i] = (ids[20] + 1) % 41;        // differs within the cache
      if (call == 2) ids.resize(7);                           // lies within the cache
    }
  }
}

TEST(Generate, prompts_that_do_not_fit_are_refused) {
  Model model;
  EXPECT_THROW(model.run(prompts_of({5, 80}, 16), {}), UsageError);
  EXPECT_THROW(model.run(prompts_of({0}, 16), {}), UsageError);
  EXPECT_EQ(model.run(prompts_of({80}, 16), {}).at(0).size(), 16u);  // to the last position
}

}  // namespace lockstep::testing::generate_test
