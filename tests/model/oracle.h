// Reads the fixtures of tests/oracle/make_fixtures.py: the results of PyTorch for a tiny model of
// each family. A test that includes this defines LOCKSTEP_FIXTURES, their folder.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "tests/kernels/reference.h"
#include "tests/model/tiny_model.h"

namespace lockstep::testing {

// Oracle is a folder of the fixtures: a model and the results of PyTorch.
class Oracle {
 public:
  explicit Oracle(const std::string& family)
      : folder_(std::filesystem::path(LOCKSTEP_FIXTURES) / family),
        config(config_from_huggingface(
            Json::parse(read_text(folder_ / "config.json", 1 << 20), "config.json"),
            "config.json")),
        model_(folder_ / "model.safetensors"),
        expected_(folder_ / "expected.safetensors") {}

  Doubles expected(const std::string& name) { return read(expected_, name); }

  // Parameters by our names, in our layout: weights (prefix "") or gradients ("grad.").
  std::map<std::string, Doubles> parameters(const std::string& prefix) {
    std::map<std::string, Doubles> all;
    for (const auto& tensor : huggingface_tensors(config)) {
      const auto values = read(prefix.empty() ? model_ : expected_, prefix + tensor.name);
      const auto parts = tensor.parameters.size();
      for (std::size_t part = 0; part < parts; ++part)
        all[tensor.parameters[part]] =
            tensor.transposed
                ? turned(values, tensor.shape, part, parts)
                : Doubles(values.begin() + offset(values.size() * part / parts),
                          values.begin() + offset(values.size() * (part + 1) / parts));
    }
    return all;
  }

 private:
  static std::ptrdiff_t offset(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }

  Doubles read(const SafetensorsFile& file, const std::string& name) {
    const auto* tensor = file.find(name);
    LOCKSTEP_CHECK(tensor != nullptr, "the fixture has no ", name);
    const Arena::Scope scope(bench_.arena);
    const auto type = tensor->type == StoredType::i32 ? DType::int32 : DType::fp32;
    const auto values = bench_.poisoned({tensor->elements()}, type);
    file.read(*tensor, 0, values);
    return doubles(values);
  }

  // Part of a matrix stored [inputs, outputs], as [outputs / parts, inputs].
  static Doubles turned(const Doubles& values, const Shape& shape, std::size_t part,
                        std::size_t parts) {
    const auto I = static_cast<std::size_t>(shape[0]), O = static_cast<std::size_t>(shape[1]);
    Doubles out;
    for (std::size_t o = O * part / parts; o < O * (part + 1) / parts; ++o)
      for (std::size_t i = 0; i < I; ++i)
        out.push_back(values[i * O + o]);
    return out;
  }

  std::filesystem::path folder_;
  Bench bench_;

 public:
  const ModelConfig config;

 private:
  SafetensorsFile model_, expected_;
};

// The largest magnitude; NaN if any value is NaN.
inline double largest(const Doubles& values) {
  double most = 0;
  for (const double v : values)
    if (std::abs(v) > most || std::isnan(v)) most = std::abs(v);
  return most;
}
inline double length(const Doubles& values) {
  return std::sqrt(reference::dot(values, values));
}

struct Worst {
  double error = -1;
  std::string name;
};
// The tensor with the largest norm(ours - theirs) / norm(theirs). The gradient of GPT-2's key bias
// is zero by algebra; its scale is that of the query bias.
inline Worst worst_gradient(const std::map<std::string, Doubles>& ours,
                            const std::map<std::string, Doubles>& theirs,
                            double (*norm)(const Doubles&)) {
  Worst worst;
  for (const auto& [name, gradient] : theirs) {
    auto scale = name;
    const auto k_bias = name.find("c_attn.k.bias");
    if (k_bias != std::string::npos) scale[k_bias + 7] = 'q';
    Doubles difference = ours.at(name);
    for (std::size_t i = 0; i < difference.size(); ++i)
      difference[i] -= gradient.at(i);
    const double error = norm(difference) / norm(theirs.at(scale));
    if (!(error <= worst.error)) worst = {error, name};
    if (std::isnan(error)) break;
  }
  return worst;
}

// The results of a model on the batch of the fixture.
struct Computed {
  Tensor logits;    // [N, Vp]
  double loss_sum;  // over valid_tokens
  int valid_tokens;
  std::map<std::string, Doubles> gradients;  // of the mean loss
};

// Loaded has the model and batch of a fixture, in the engine on the CPU.
struct Loaded {
  Oracle oracle;
  TinyModel model;

  Loaded(Family family, DType dtype)
      : oracle(name(family)), model(oracle.config, {.dtype = dtype, .sequences = 3, .length = 11}) {
    const auto weights = oracle.parameters("");
    const auto load = [&](const ParamSpec& spec, Tensor t) {
      const auto& values = weights.at(spec.name);
      LOCKSTEP_CHECK(t.elements() == static_cast<std::int64_t>(values.size()), spec.name);
      for (std::int64_t i = 0; i < t.elements(); ++i)
        Bench::set(t, i, values[static_cast<std::size_t>(i)]);
    };
    model.for_each(&ParamShard::weight, load);
    const auto inputs = oracle.expected("inputs"), targets = oracle.expected("targets");
    model.batch.inputs.assign(inputs.begin(), inputs.end());
    model.batch.targets.assign(targets.begin(), targets.end());
    valid = static_cast<int>(
        std::count_if(targets.begin(), targets.end(), [](double target) { return target >= 0; }));
  }
  Computed compute() {
    const auto logits = model.logits();
    const double sum = model.forward_backward(gradient_scale());
    return {logits, sum, static_cast<int>(get(model.targets.valid_tokens, 0)), model.gradients()};
  }
  float gradient_scale() const { return 1.0f / static_cast<float>(valid); }

  void expect_fp32(const Computed& computed) {
    expect_loss(computed, 1e-5);
    EXPECT_LE(largest(logits_error(computed)), 1e-5 * largest(oracle.expected("logits")));
    const auto worst = worst_gradient(computed.gradients, oracle.parameters("grad."), largest);
    EXPECT_LE(worst.error, 1e-5) << worst.name;
  }

  // A logit has about ten roundings of 2^-9 each, which rarely all have the same sign: 2% of the
  // norm of the logits. The loss averages such errors over about 20 tokens: 2% / sqrt(20). The wide
  // weights of these models amplify the rounding of gradients, also in PyTorch. The limit of their
  // error is therefore 1.5 times PyTorch's own bf16 error. Both errors are draws of the same random
  // sum; on every instruction set their ratio was 0.8 to 1.2.
  void expect_bf16(const Computed& computed) {
    expect_loss(computed, 0.02 / std::sqrt(20.0));
    EXPECT_LE(length(logits_error(computed)), 0.02 * length(oracle.expected("logits")));
    const auto worst = worst_gradient(computed.gradients, oracle.parameters("grad."), length);
    EXPECT_LE(worst.error, 1.5 * oracle.expected("bf16_error")[0]) << worst.name;
  }

  int valid = 0;

 private:
  void expect_loss(const Computed& computed, double relative) {
    EXPECT_EQ(computed.valid_tokens, valid);
    const double expected = oracle.expected("loss")[0];
    EXPECT_NEAR(computed.loss_sum / valid, expected, relative * expected);
  }
  Doubles logits_error(const Computed& computed) {
    const auto expected = oracle.expected("logits");
    const auto V = oracle.config.vocabulary, Vp = computed.logits.shape[1];
    Doubles error;
    for (std::int64_t n = 0; n < computed.logits.shape[0]; ++n)
      for (std::int64_t v = 0; v < V; ++v)
        error.push_back(get(computed.logits, n * Vp + v) - expected.at(error.size()));
    EXPECT_EQ(error.size(), expected.size());
    return error;
  }
};

}  // namespace lockstep::testing
