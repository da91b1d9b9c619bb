#include <gtest/gtest.h>

#include "tests/model/tiny_model.h"

namespace lockstep::testing::generation_test {

class Generation : public ::testing::TestWithParam<Family> {};

// Feeds the batch to the cache in pieces of the given lengths. Returns the logits of all tokens, in
// the rows [B, T] of the whole batch.
Doubles cached_logits(TinyModel& model, const std::vector<std::int64_t>& pieces) {
  auto& bench = model.bench;
  const auto V = stored_vocabulary(model.transformer.config()), B = model.B, T = model.T;
  const auto cache = model.transformer.allocate_cache(bench.arena, bench.stream, B, T + 2);
  Doubles all(static_cast<std::size_t>(B * T * V));
  std::int64_t first = 0;
  for (const auto n : pieces) {
    std::vector<std::int32_t> ids, positions;
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t t = first; t < first + n; ++t) {
        ids.push_back(model.batch.inputs[static_cast<std::size_t>(b * T + t)]);
        positions.push_back(static_cast<std::int32_t>(t));
      }
    auto step = model.step();
    step.positions = bench.integers(positions, {B, n});
    step.document_start = {};
    const auto logits = bench.poisoned({B * n, V}, DType::fp32);
    model.transformer.predict(step, logits, bench.integers(ids), &cache);
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t i = 0; i < n * V; ++i)
        all[static_cast<std::size_t>((b * T + first) * V + i)] = get(logits, b * n * V + i);
    first += n;
  }
  return all;
}

TEST_P(Generation, a_cache_gives_the_logits_of_the_whole_sequence) {
  for (const auto& pieces : {std::vector<std::int64_t>{9}, {5, 4}, {4, 1, 2, 1, 1}}) {
    TinyModel model(tiny(GetParam()));
    const auto expected = doubles(model.logits());
    expect_close(cached_logits(model, pieces), expected, 4e-6, "logits");
  }
}

TEST_P(Generation, logits_of_the_last_tokens_are_the_last_rows) {
  TinyModel model(tiny(GetParam()));
  const auto V = stored_vocabulary(model.transformer.config()), B = model.B, T = model.T;
  const auto all = model.logits();
  const auto last = model.bench.poisoned({B * 2, V}, DType::fp32);
  model.transformer.predict(model.step(), last, model.bench.integers(model.batch.inputs));
  for (std::int64_t b = 0; b < B; ++b)
    expect_close(last.rows(b * 2, 2), doubles(all.rows(b * T + T - 2, 2)), 4e-6, "last rows");
}

TEST_P(Generation, prediction_needs_only_the_weights) {
  const auto config = tiny(GetParam());
  Bench bench;
  Arena scratch(Device{}, Arena::Memory::host, 1 << 24);
  auto comms = make_comms();
  ParamStore params(comms, {.compute_dtype = DType::bf16});
  Transformer transformer(params, config, {});
  params.allocate_weights(bench.arena, bench.stream);
  params.initialize(bench.stream, 11);
  const auto cache = transformer.allocate_cache(bench.arena, bench.stream, 1, 8);
  const StepContext step{.compute = bench.stream,
                         .scratch = scratch,
                         .params = params,
                         .comms = comms,
                         .positions = bench.integers({0, 1, 2}, {1, 3}),
                         .document_start = {},
                         .rope_table = {}};
  const auto logits = bench.poisoned({1, stored_vocabulary(config)}, DType::fp32);
  transformer.predict(step, logits, bench.integers({3, 1, 4}), &cache);
  for (std::int64_t v = 0; v < config.vocabulary; ++v)
    EXPECT_TRUE(std::isfinite(get(logits, v)));
}

INSTANTIATE_TEST_SUITE_P(all, Generation, ::testing::ValuesIn(kFamilies),
                         [](const auto& p) { return std::string(name(p.param)); });

}  // namespace lockstep::testing::generation_test
