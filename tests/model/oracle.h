// The fixtures that tests/oracle/make_fixtures.py made: what PyTorch computes for a tiny model of
// each family. A test that includes this defines LOCKSTEP_FIXTURES, their folder.
#pragma once

#include <algorithm>
#include <filesystem>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "tests/model/tiny_model.h"

namespace lockstep::testing {

// A folder of the fixtures: the model and what PyTorch made of it.
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

// The fixture's model and batch, in the engine.
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
  Doubles logits() {
    Doubles all;
    const auto padded = model.logits();
    for (std::int64_t n = 0; n < padded.shape[0]; ++n)
      for (std::int64_t v = 0; v < oracle.config.vocabulary; ++v)
        all.push_back(get(padded, n * padded.shape[1] + v));
    return all;
  }
  int valid = 0;
};

}  // namespace lockstep::testing
