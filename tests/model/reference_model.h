// The naive float64 decoder of all five families, written from the formulas: one token, one head,
// one number at a time, parameters by name. It shares only ModelConfig and the names of parameters
// with the engine.
#pragma once

#include <cmath>
#include <map>
#include <string>

#include "model/families.h"
#include "tests/testing.h"

namespace lockstep::testing {

struct ReferenceBatch {
  std::size_t sequences = 0, length = 0;
  std::vector<int> inputs, targets;  // [B T]; a target of -1 is ignored
  std::vector<int> document_start;   // [B T], index in the sequence; positions count from it
};

class ReferenceModel {
 public:
  explicit ReferenceModel(const ModelConfig& config) : c_(config) {}

  std::map<std::string, Doubles> parameters;  // row-major, unpadded

  // [B T, V]
  Doubles logits(const ReferenceBatch& batch) const {
    Doubles all;
    for (std::size_t b = 0; b < batch.sequences; ++b) {
      auto x = embed(batch, b);
      for (std::int64_t layer = 0; layer < c_.layers; ++layer)
        add_layer(x, layer, batch, b);
      const auto names = model_names(c_.family);
      const auto& head = at((c_.tied_head ? names.embedding : names.head) + ".weight");
      for (const auto& row : x) {
        const auto y = product(head, {}, norm(row, names.final_norm));
        all.insert(all.end(), y.begin(), y.end());
      }
    }
    return all;
  }

  // Sum over the tokens that are not ignored of -log softmax + z_loss (log sum exp)^2.
  double loss_sum(const ReferenceBatch& batch, double z_loss = 0) const {
    const auto all = logits(batch);
    const auto V = static_cast<std::size_t>(c_.vocabulary);
    double sum = 0;
    for (std::size_t n = 0; n < batch.targets.size(); ++n) {
      if (batch.targets[n] < 0) continue;
      double exponents = 0;
      for (std::size_t v = 0; v < V; ++v)
        exponents += std::exp(all[n * V + v]);
      const double lse = std::log(exponents);
      sum += lse - all[n * V + static_cast<std::size_t>(batch.targets[n])] + z_loss * lse * lse;
    }
    return sum;
  }

 private:
  using Rows = std::vector<Doubles>;

  const Doubles& at(const std::string& name) const { return parameters.at(name); }
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

  static Doubles product(const Doubles& matrix, const Doubles& bias, const Doubles& x) {
    Doubles y(matrix.size() / x.size());
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i)
        y[o] += matrix[o * x.size() + i] * x[i];
      if (!bias.empty()) y[o] += bias[o];
    }
    return y;
  }
  Doubles linear(const std::string& name, const Doubles& x) const {
    const auto bias = parameters.find(name + ".bias");
    return product(at(name + ".weight"), bias == parameters.end() ? Doubles{} : bias->second, x);
  }

  static Doubles rms(const Doubles& x, const Doubles& weight, double epsilon) {
    double squares = 0;
    for (const double v : x)
      squares += v * v;
    Doubles y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * weight[i];
    return y;
  }
  Doubles norm(const Doubles& x, const std::string& name) const {
    const double epsilon = static_cast<double>(c_.norm_epsilon);
    if (c_.norm == ModelConfig::Norm::rms) return rms(x, at(name + ".weight"), epsilon);
    double mean = 0;
    for (const double v : x)
      mean += v / static_cast<double>(x.size());
    Doubles centred(x);
    for (double& v : centred)
      v -= mean;
    auto y = rms(centred, at(name + ".weight"), epsilon);
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] += at(name + ".bias")[i];
    return y;
  }

  static int position(const ReferenceBatch& batch, std::size_t b, std::size_t t) {
    return static_cast<int>(t) - batch.document_start[b * batch.length + t];
  }

  Rows embed(const ReferenceBatch& batch, std::size_t b) const {
    const auto names = model_names(c_.family);
    const auto D = size(c_.width);
    Rows x(batch.length, Doubles(D));
    for (std::size_t t = 0; t < batch.length; ++t) {
      const auto id = size(batch.inputs[b * batch.length + t]), p = size(position(batch, b, t));
      for (std::size_t d = 0; d < D; ++d) {
        x[t][d] = at(names.embedding + ".weight")[id * D + d];
        if (c_.learned_positions) x[t][d] += at(names.positions + ".weight")[p * D + d];
      }
    }
    return x;
  }

  // The scaling of wavelengths of Llama 3.1, as in the reference code of its paper.
  double frequency(std::size_t i) const {
    const double f = std::pow(static_cast<double>(c_.rope_theta),
                              -2.0 * static_cast<double>(i) / static_cast<double>(c_.head_size));
    if (!c_.rope_scaling) return f;
    const auto& s = *c_.rope_scaling;
    const double factor = static_cast<double>(s.factor), low = static_cast<double>(s.low_factor),
                 high = static_cast<double>(s.high_factor);
    const double turns = s.original_context * f / (2 * std::acos(-1.0));  // in the original context
    if (turns < low) return f / factor;
    if (turns > high) return f;
    const double smooth = (turns - low) / (high - low);
    return (1 - smooth) * f / factor + smooth * f;
  }

  void rotate(Doubles& head, int p) const {
    const auto half = head.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = p * frequency(i), a = head[i], b = head[i + half];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  // Head h of a projection of one token, normalized and rotated if the layer does so.
  Doubles head_of(const Doubles& row, std::int64_t h, const std::string& norm_name,
                  std::int64_t layer, int p) const {
    const auto K = size(c_.head_size);
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(size(h) * K);
    Doubles head(begin, begin + static_cast<std::ptrdiff_t>(K));
    if (c_.qk_norm)
      head = rms(head, at(norm_name + ".weight"), static_cast<double>(c_.norm_epsilon));
    if (c_.has_rope(layer)) rotate(head, p);
    return head;
  }

  static Doubles attend(const Doubles& q, const Rows& keys, const Rows& values, std::size_t first) {
    Doubles weights, out(q.size());
    double total = 0;
    for (std::size_t j = first; j < keys.size(); ++j) {
      double score = 0;
      for (std::size_t i = 0; i < q.size(); ++i)
        score += q[i] * keys[j][i];
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(q.size()))));
      total += weights.back();
    }
    for (std::size_t j = first; j < keys.size(); ++j)
      for (std::size_t i = 0; i < q.size(); ++i)
        out[i] += weights[j - first] / total * values[j][i];
    return out;
  }

  Rows attention(const Rows& x, std::int64_t layer, const ReferenceBatch& batch,
                 std::size_t b) const {
    const auto n = layer_names(c_.family, layer);
    std::vector<Rows> keys(size(c_.kv_heads)), values(size(c_.kv_heads));
    Rows out;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const auto y = norm(x[t], n.norm1);
      const auto q = linear(n.q, y), k = linear(n.k, y), v = linear(n.v, y);
      const int p = position(batch, b, t);
      for (std::int64_t g = 0; g < c_.kv_heads; ++g) {
        const auto K = size(c_.head_size), at_head = size(g) * K;
        keys[size(g)].push_back(head_of(k, g, n.k_norm, layer, p));
        values[size(g)].emplace_back(v.begin() + static_cast<std::ptrdiff_t>(at_head),
                                     v.begin() + static_cast<std::ptrdiff_t>(at_head + K));
      }
      Doubles heads;
      for (std::int64_t h = 0; h < c_.heads; ++h) {
        const auto g = size(h / (c_.heads / c_.kv_heads));
        const auto head = attend(head_of(q, h, n.q_norm, layer, p), keys[g], values[g],
                                 size(batch.document_start[b * batch.length + t]));
        heads.insert(heads.end(), head.begin(), head.end());
      }
      out.push_back(linear(n.out, heads));
    }
    return out;
  }

  Doubles mlp(const Doubles& x, const LayerNames& n) const {
    auto hidden = linear(n.up, x);
    if (c_.is_gated()) {
      const auto gate = linear(n.gate, x);
      for (std::size_t i = 0; i < hidden.size(); ++i)
        hidden[i] *= gate[i] / (1 + std::exp(-gate[i]));
    } else {
      const double scale = std::sqrt(2 / std::acos(-1.0));
      for (double& h : hidden)
        h = h / 2 * (1 + std::tanh(scale * (h + 0.044715 * h * h * h)));
    }
    return linear(n.down, hidden);
  }

  void add_layer(Rows& x, std::int64_t layer, const ReferenceBatch& batch, std::size_t b) const {
    const auto n = layer_names(c_.family, layer);
    const auto branch = attention(x, layer, batch, b);
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t d = 0; d < x[t].size(); ++d)
        x[t][d] += branch[t][d];
      const auto y = mlp(norm(x[t], n.norm2), n);
      for (std::size_t d = 0; d < x[t].size(); ++d)
        x[t][d] += y[d];
    }
  }

  ModelConfig c_;
};

}  // namespace lockstep::testing
