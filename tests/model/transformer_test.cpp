#include "model/transformer.h"

#include <gtest/gtest.h>

#include "tests/kernels/reference.h"
#include "tests/model/tiny_model.h"

namespace lockstep::testing::transformer_test {

class Decoder : public ::testing::TestWithParam<Family> {};

// Elements of a parameter to probe by finite differences, spread evenly.
std::vector<std::size_t> probes(std::size_t elements, std::size_t most) {
  std::vector<std::size_t> chosen;
  const auto count = std::min(elements, most);
  for (std::size_t i = 0; i < count; ++i)
    chosen.push_back((i * elements + elements / 2) / count);
  return chosen;
}

// The loss along one element of one parameter, in float64.
double slope(ReferenceModel& reference, const ReferenceBatch& batch, const std::string& name,
             std::size_t i, double z_loss) {
  double& x = reference.parameters[name][i];
  const double kept = x, h = 1e-5;
  x = kept + h;
  const double above = reference.loss_sum(batch, z_loss);
  x = kept - h;
  const double below = reference.loss_sum(batch, z_loss);
  x = kept;
  return (above - below) / (2 * h);
}

using Gradients = std::map<std::string, Doubles>;

// The largest element, which is the scale of differences. GPT-2's key bias shifts every score of a
// query by the same amount, so its gradient is zero by algebra. Its scale is that of the query
// bias.
double magnitude(const Gradients& gradients, std::string name) {
  const auto k_bias = name.find("c_attn.k.bias");
  if (k_bias != std::string::npos) name[k_bias + 7] = 'q';
  double largest = 0;
  for (const double g : gradients.at(name))
    largest = std::max(largest, std::abs(g));
  return largest;
}

struct Probe {
  double scale = 1, relative = 1e-5, z_loss = 0;
  std::size_t elements = 3;  // of each parameter
};
void expect_gradients_are_slopes(TinyModel& model, const Probe& probe = {}) {
  auto reference = model.reference();
  const auto gradients = model.gradients();
  for (const auto& [name, gradient] : gradients)
    for (const auto i : probes(gradient.size(), probe.elements))
      EXPECT_NEAR(gradient[i], probe.scale * slope(reference, model.batch, name, i, probe.z_loss),
                  probe.relative * magnitude(gradients, name))
          << name << " element " << i;
}

void expect_same(const Gradients& actual, const Gradients& expected, double relative) {
  for (const auto& [name, gradient] : actual)
    for (std::size_t i = 0; i < gradient.size(); ++i)
      EXPECT_NEAR(gradient[i], expected.at(name)[i], relative * magnitude(expected, name))
          << name << " element " << i;
}

TEST_P(Decoder, loss_and_logits_are_those_of_the_reference) {
  TinyModel model(tiny(GetParam()));
  const auto reference = model.reference();
  const double expected = reference.loss_sum(model.batch);
  EXPECT_NEAR(model.forward_backward(), expected, 1e-6 * expected);
  EXPECT_NEAR(model.evaluate(), expected, 1e-6 * expected);
  const auto V = model.transformer.config().vocabulary;
  const auto logits = model.logits();
  Doubles actual;
  for (std::int64_t n = 0; n < logits.shape[0]; ++n)
    for (std::int64_t v = 0; v < V; ++v)
      actual.push_back(get(logits.rows(n, 1), v));
  expect_close(actual, reference.logits(model.batch), 4e-6, "logits");
}

TEST_P(Decoder, gradients_are_the_slopes_of_the_reference_loss) {
  TinyModel model(tiny(GetParam()));
  model.forward_backward();
  expect_gradients_are_slopes(model, {.elements = 10});
}

// bf16 keeps 8 bits of each activation. A gradient has about ten roundings, and a sum of 18 tokens
// averages few of them out.
TEST_P(Decoder, bf16_stays_within_its_rounding_of_the_reference) {
  TinyModel model(tiny(GetParam()), {.dtype = DType::bf16});
  const double expected = model.reference().loss_sum(model.batch);
  EXPECT_NEAR(model.forward_backward(), expected, 1e-2 * expected);
  EXPECT_NEAR(model.evaluate(), expected, 1e-2 * expected);
  expect_gradients_are_slopes(model, {.relative = 6e-2});
}

TEST_P(Decoder, recompute_is_bitwise_exact) {
  for (const auto dtype : {DType::fp32, DType::bf16}) {
    const auto run = [&](Recompute recompute) {
      TinyModel model(tiny(GetParam()), {.dtype = dtype, .model = {.recompute = recompute}});
      const double loss = model.forward_backward();
      return std::pair(loss, model.gradients());
    };
    const auto kept = run(Recompute::none);
    EXPECT_EQ(run(Recompute::cheap), kept) << name(dtype);
    EXPECT_EQ(run(Recompute::block), kept) << name(dtype);
  }
}

TEST_P(Decoder, tied_and_untied_heads_have_the_right_gradients) {
  auto config = tiny(GetParam());
  config.tied_head = !config.tied_head;
  TinyModel model(config);
  model.forward_backward();
  expect_gradients_are_slopes(model);
}

// The loss in chunks has the same bits; weight gradients are summed in another order.
TEST_P(Decoder, a_chunked_head_equals_a_whole_one) {
  const TinyOptions whole{.sequences = 3, .length = 50};
  auto chunked = whole;
  chunked.model.head.logits_bytes = 1;  // the smallest chunk, 64 tokens, of 150
  auto config = tiny(GetParam());
  config.max_positions = 50;
  TinyModel a(config, whole), b(config, chunked);
  EXPECT_EQ(a.forward_backward(), b.forward_backward());
  EXPECT_EQ(a.evaluate(), b.evaluate());
  expect_same(b.gradients(), a.gradients(), 2e-6);
}

TEST_P(Decoder, an_unequal_mask_gives_the_gradient_of_the_masked_mean) {
  TinyModel model(tiny(GetParam()));
  for (std::size_t n = 0; n < model.batch.targets.size(); ++n)
    if (n < model.batch.length ? n != 4 : n % 3 == 0) model.batch.targets[n] = -1;
  const float nominal = static_cast<float>(model.batch.targets.size());
  const double loss = model.forward_backward(1.0f / nominal);
  EXPECT_EQ(get(model.targets.valid_tokens, 0), 7);
  EXPECT_NEAR(loss, model.reference().loss_sum(model.batch), 1e-6 * loss);
  // The optimizer multiplies by nominal / valid, which gives the gradient of the masked mean.
  expect_gradients_are_slopes(model, {.scale = 1 / static_cast<double>(nominal)});
}

TEST_P(Decoder, z_loss_is_in_the_gradient_and_not_in_evaluation) {
  TinyModel model(tiny(GetParam()), {.model = {.recompute = {}, .head = {.z_loss = 0.1f}}});
  const double expected = model.reference().loss_sum(model.batch, static_cast<double>(0.1f));
  EXPECT_NEAR(model.forward_backward(), expected, 1e-6 * expected);
  expect_gradients_are_slopes(model, {.z_loss = static_cast<double>(0.1f)});
  EXPECT_LT(model.evaluate(), 0.99 * expected);
}

TEST_P(Decoder, a_document_mask_equals_separate_documents) {
  const auto config = tiny(GetParam());
  TinyModel packed(config, {.sequences = 1, .length = 11});
  for (std::size_t t = 4; t < 11; ++t)
    packed.batch.document_start[t] = 4;
  const double together = packed.forward_backward();
  double apart = 0;
  Gradients sum;
  for (const auto& [first, last] : {std::pair<std::size_t, std::size_t>{0, 4}, {4, 11}}) {
    TinyModel document(config, {.sequences = 1, .length = static_cast<std::int64_t>(last - first)});
    for (std::size_t t = first; t < last; ++t) {
      document.batch.inputs[t - first] = packed.batch.inputs[t];
      document.batch.targets[t - first] = packed.batch.targets[t];
    }
    apart += document.forward_backward();
    for (const auto& [name, gradient] : document.gradients())
      sum[name] = sum.count(name) == 0 ? gradient : reference::add(sum[name], gradient);
  }
  EXPECT_NEAR(together, apart, 1e-6 * apart);
  expect_same(packed.gradients(), sum, 1e-5);
}

TEST_P(Decoder, gradients_of_micro_batches_are_summed) {
  const auto config = tiny(GetParam());
  TinyModel model(config);
  model.forward_backward();
  auto twice = model.gradients();
  for (auto& [name, gradient] : twice)
    gradient = reference::add(gradient, gradient);
  const auto inputs = model.bench.integers(model.batch.inputs);
  const auto targets = model.fresh_targets(1.0f);
  model.transformer.forward(model.step(), 0, inputs, targets, /*last=*/true);
  model.transformer.backward(model.step(), 0, inputs, /*last=*/true);
  expect_same(model.gradients(), twice, 4e-6);
}

// With small initial weights the logits are near zero, and the loss of each token is log V.
TEST_P(Decoder, an_initialized_model_has_the_loss_of_a_uniform_guess) {
  TinyModel model(tiny(GetParam()));
  model.params.initialize(model.bench.stream, 5);
  const double per_token = model.evaluate() / static_cast<double>(model.batch.inputs.size());
  EXPECT_NEAR(per_token, std::log(37.0), 0.02 * std::log(37.0));
}

// Two layers give 0.02 / sqrt(4). The deviation of n draws is within 4 standard errors, each
// 1 / sqrt(2 n).
TEST_P(Decoder, initial_weights_have_the_deviation_of_the_family) {
  TinyModel model(tiny(GetParam()));
  model.params.initialize(model.bench.stream, 5);
  const bool scaled = GetParam() == Family::gpt2 || GetParam() == Family::smollm3;
  model.for_each(&ParamShard::weight, [&](const ParamSpec& spec, Tensor t) {
    if (spec.init != Init::normal) return;
    const bool residual = spec.name.find("c_proj") != std::string::npos ||
                          spec.name.find("o_proj") != std::string::npos ||
                          spec.name.find("down_proj") != std::string::npos;
    const double expected = residual && scaled ? 0.01 : 0.02;
    const auto values = doubles(t);
    const auto n = static_cast<double>(values.size());
    EXPECT_NEAR(std::sqrt(reference::dot(values, values) / n), expected,
                expected * 4 / std::sqrt(2 * n))
        << spec.name;
  });
}

TEST_P(Decoder, a_trace_has_the_time_of_each_component) {
  TinyModel model(tiny(GetParam()));
  Trace trace(model.bench.stream);
  trace.begin_step(true);
  model.forward_backward();
  trace.end_step();
  const StepTime time = trace.take();
  for (const auto component : {Component::products, Component::attention, Component::memory_bound})
    EXPECT_GT(time[component], 0) << name(component);
}

std::string family_name(const ::testing::TestParamInfo<Family>& p) {
  return name(p.param);
}
INSTANTIATE_TEST_SUITE_P(all, Decoder, ::testing::ValuesIn(kFamilies), family_name);

TEST(Transformer, sequences_longer_than_the_model_are_refused) {
  EXPECT_THROW(TinyModel(tiny(Family::gpt2), {.sequences = 1, .length = 41}), ConfigError);
}

TEST(Head, an_empty_batch_adds_no_loss) {
  Bench b;
  auto comms = make_comms();
  ParamStore params(comms, {});
  const auto config = tiny(Family::llama3);
  const Embedding embedding(params, config);
  const Head head(params, config, embedding, {});
  params.allocate(b.arena, b.stream);
  params.begin_step(b.stream);
  const StepContext step{.compute = b.stream,
                         .scratch = b.arena,
                         .params = params,
                         .comms = comms,
                         .positions = {},
                         .document_start = {},
                         .rope_table = {}};
  const Targets targets{.ids = b.integers({}, {0}),
                        .loss_sum = b.random({1}, DType::fp32, 0.0f),
                        .valid_tokens = b.integers({0})};
  const auto none = b.random({0, config.width}, DType::fp32);
  head.loss_and_gradient(step, {.values = none, .absmax = {}}, none, targets);
  head.loss(step, none, targets);
  EXPECT_EQ(get(targets.loss_sum, 0), 0);
  EXPECT_EQ(get(targets.valid_tokens, 0), 0);
}

TEST(Transformer, vocabularies_are_stored_in_whole_vectors) {
  const auto stored = [](std::int64_t vocabulary) {
    return stored_vocabulary(sized(Family::gpt2, {.vocabulary = vocabulary}));
  };
  EXPECT_EQ(stored(257), 272);
  EXPECT_EQ(stored(50257), 50304);
  EXPECT_EQ(stored(128256), 128256);
}

TEST(Transformer, padding_of_the_vocabulary_stays_zero) {
  for (const auto family : kFamilies) {
    TinyModel t(tiny(family));
    t.forward_backward();
    for (auto& shard : t.params.shards()) {
      std::vector<bool> owned(static_cast<std::size_t>(shard.grad.elements()), false);
      for (const auto& s : shard.segments)
        std::fill_n(owned.begin() + s.shard_begin, s.count, true);
      for (std::size_t i = 0; i < owned.size(); ++i)
        if (!owned[i]) {
          ASSERT_EQ(get(shard.grad, static_cast<std::int64_t>(i)), 0.0) << name(family);
        }
    }
  }
}

}  // namespace lockstep::testing::transformer_test
