// An OperatorCase declares an operator once for all of its tests: its operands, its call and the
// float64 values of its outputs. kernels_tests check every property of it on the CPU
// (operator_test.cpp). The tests of GPUs compare a GPU with the CPU (tests/cuda/operator_test.cpp).
// The cases are in cases/.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/draw.h"

namespace lockstep::testing {

// The index of a tensor of a case; -1: none.
struct Operand {
  int index = -1;
  explicit operator bool() const { return index >= 0; }
};

// On holds the stream that an operator runs on, with its scratch and its operands there.
struct On {
  Stream& stream;
  Arena& scratch;
  const std::vector<Tensor>& tensors;
  Tensor operator()(Operand o) const {
    return o ? tensors[static_cast<std::size_t>(o.index)] : Tensor{};
  }
};

// A Bound limits the error of an output. No element differs from the reference by more than
//
//   relative * max(largest magnitude of the reference, scale)
//
// where `relative` is the tolerance of the output's type unless given, and `scale` is drawn_scale
// for drawn shapes and fixed_scale for fixed ones; 0: only the largest value counts. The output of
// a GPU is compared with that of the CPU in the same way, by gpu_relative and gpu_scale; with
// same_bits, bit for bit.
//
// Example: dweight is a sum over N rows of terms around 1, and terms cancel. With N = 400 and
// Bound{.drawn_scale = root(N)}, where the largest sum is 5, the scale of 20 is larger: fp32, with
// a tolerance of 4e-6, may be off by 8e-5. If the largest sum is 50, it may be off by 2e-4.
struct Bound {
  double drawn_scale = 0, fixed_scale = 0, gpu_scale = 0, relative = -1, gpu_relative = -1;
  bool same_bits = false;
  // For stochastic rounding: at most 1 in 100 bf16 numbers of a GPU differs from the CPU.
  bool rounds_alike = false;
  bool is_compared = true;  // false: only Operator::expect_anywhere checks it
};
// The output equals the reference exactly, also on a GPU.
constexpr Bound kExact{.relative = 0, .same_bits = true};

// Columns [first, first + count) of the rows of an output, with their own bound.
struct Part {
  std::string name;
  std::int64_t first = 0, count = 0;
  Bound bound;
};

struct DeclaredOperand {
  enum class Role : std::uint8_t { in, out, adds, changes };
  Role role;
  Tensor before;
  std::vector<Part> parts;  // of an output
  Operand absmax_of;
};

using Sizes = std::vector<std::int64_t>;

// Results gives the values of operands to the reference and checks the outputs.
class Results {
 public:
  Results(const std::vector<DeclaredOperand>& declared, const std::vector<Tensor>& after,
          bool fixed)
      : is_fixed(fixed), declared_(declared), after_(after) {}

  Doubles operator[](Operand o) const { return o ? doubles(of(o).before) : Doubles{}; }  // before
  Tensor before(Operand o) const { return of(o).before; }
  Tensor tensor(Operand o) const { return after_[static_cast<std::size_t>(o.index)]; }
  Doubles after(Operand o) const { return doubles(tensor(o)); }

  // `out` is within its bound. If the operator adds to `out`, `expected` is the added value.
  void close(Operand out, Doubles expected) const;
  // To be called for an output that is checked without close(): unchecked outputs are failures.
  void checked(Operand out) const { checked_.insert(out.index); }
  bool is_checked(Operand out) const { return checked_.contains(out.index); }

  const bool is_fixed;  // whether the shape is fixed, not drawn

 private:
  const DeclaredOperand& of(Operand o) const {
    return declared_[static_cast<std::size_t>(o.index)];
  }
  const std::vector<DeclaredOperand>& declared_;
  const std::vector<Tensor>& after_;
  mutable std::set<int> checked_;
};

// Compares each part of `actual` with `expected`.
inline void expect_parts(ConstTensor actual, const Doubles& expected,
                         const std::vector<Part>& parts, bool on_gpu, bool is_fixed) {
  for (const Part& part : parts) {
    const Bound& bound = part.bound;
    if (!bound.is_compared) continue;
    double relative = on_gpu ? bound.gpu_relative : bound.relative;
    if (relative < 0) relative = tolerance(actual.dtype);
    const double scale = on_gpu     ? bound.gpu_scale
                         : is_fixed ? bound.fixed_scale
                                    : bound.drawn_scale;
    if (part.count == 0) {
      expect_close(actual, expected, relative, part.name, scale);
      continue;
    }
    const auto columns = actual.elements() / actual.shape[0];
    Doubles some, of_expected;
    for (std::int64_t i = 0; i < actual.elements(); ++i)
      if (const auto c = i % columns; c >= part.first && c < part.first + part.count) {
        some.push_back(get(actual, i));
        of_expected.push_back(expected[static_cast<std::size_t>(i)]);
      }
    expect_close(some, of_expected, relative, part.name, scale);
  }
}

inline void Results::close(Operand out, Doubles expected) const {
  checked(out);
  if (of(out).role == DeclaredOperand::Role::adds) {
    const auto past = (*this)[out];
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] += past[i];
  }
  expect_parts(tensor(out), expected, of(out).parts, false, is_fixed);
}

// True in programs that compare a GPU with the CPU (tests/cuda/operator_test.cpp).
bool is_on_gpu();

// OperatorCase::make fills an Operator for one choice of sizes and options.
class Operator {
 public:
  // `pattern`: the choice of options, in [0, kPatterns); -1: drawn
  Operator(Bench& bench, Draw& draws, Sizes sizes, DType type, int pattern)
      : b(bench), draw(draws), size(std::move(sizes)), dtype(type), pattern_(pattern) {}

  Bench& b;
  Draw& draw;
  const Sizes size;
  const DType dtype;
  std::function<void(const On&)> call;
  std::function<void(const Results&)> expect_on_cpu;
  std::function<void(const Results&)> expect_anywhere;  // further checks, also on a GPU
  bool takes_scratch = false;                           // then 0 bytes of scratch are an error

  // Patterns of options for fixed shapes: the first has all off, the last all on. In all patterns
  // together any three of four options have all values; options k and k + 4 are equal.
  static constexpr int kPatterns = 8;
  static int patterns_of(int coins) { return coins > 2 ? kPatterns : 1 << coins; }

  // An option. A pattern decides it without a draw: at a fixed shape, o.draw starts at seed 1 for
  // every pattern.
  bool coin() {
    const auto k = static_cast<unsigned>(coins_++);
    if (pattern_ < 0) return draw.coin();
    const auto bits = k % 4 == 3 ? 7u : 1u << k % 4;
    return std::popcount(static_cast<unsigned>(pattern_) & bits) % 2 == 1;
  }
  int coins() const { return coins_; }
  // True for a shape of OperatorCase::fixed. A case then has fixed values instead of draws that
  // could hide the purpose of the shape.
  bool is_fixed() const { return pattern_ >= 0 && !is_on_gpu(); }

  // An operand that the operator reads and must not change: uniform in [-scale, scale] unless
  // given.
  Operand input(const Tensor& t) { return add({Role::in, t, {}, {}}); }
  Operand in(const Shape& shape, float scale = 1) { return in(shape, dtype, scale); }
  Operand in(const Shape& shape, DType type, float scale = 1) {
    return input(random(shape, type, scale));
  }
  Operand integers(const std::vector<std::int32_t>& all, const Shape& shape = {}) {
    return input(b.integers(all, shape));
  }
  // An fp32 operand with these values.
  Operand values(const Shape& shape, const Doubles& all) {
    const auto t = b.poisoned(shape, DType::fp32);
    for (std::size_t i = 0; i < all.size(); ++i)
      Bench::set(t, static_cast<std::int64_t>(i), all[i]);
    return input(t);
  }
  // An operand that it writes, poisoned before.
  Operand out(const char* name, const Shape& shape, const Bound& bound = {}) {
    return out(name, shape, dtype, bound);
  }
  Operand out(const char* name, const Shape& shape, DType type, const Bound& bound = {}) {
    return add({Role::out, b.poisoned(shape, type), {{name, 0, 0, bound}}, {}});
  }
  // An operand that it adds to.
  Operand adds(const char* name, const Shape& shape, DType type, const Bound& bound = {}) {
    return add({Role::adds, random(shape, type), {{name, 0, 0, bound}}, {}});
  }
  // An operand that it reads and writes.
  Operand changes(const char* name, const Tensor& before, const Bound& bound = {}) {
    return add({Role::changes, before, {{name, 0, 0, bound}}, {}});
  }
  // An option: an operand that it sets to the largest magnitude of `output`.
  Operand absmax_of(Operand output) {
    if (!coin()) return {};
    return add({Role::changes, random({1}, DType::fp32, 9), {}, output});
  }
  // Gives the parts of an output their own bounds.
  void divide(Operand output, const std::vector<Part>& parts) {
    declared_[static_cast<std::size_t>(output.index)].parts = parts;
  }
  // `output`, of out(), may be stored in any one of `inputs`.
  void may_be(Operand output, const std::vector<Operand>& inputs) {
    LOCKSTEP_CHECK(declared_[static_cast<std::size_t>(output.index)].role == Role::out, "tensor ",
                   output.index, " is not of out(): may_be() takes no other");
    for (const auto input : inputs)
      aliases_.emplace_back(output, input);
  }

  // Like Bench::random, in a quarter of the time.
  Tensor random(const Shape& shape, DType type, float scale = 1) {
    const Tensor t = b.arena.allocate("random", type, shape);
    const auto purpose = ++b.draws;
    std::array<std::uint32_t, 4> words;
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      if (i % 4 == 0) words = philox(b.seed, purpose, static_cast<std::uint64_t>(i / 4));
      Bench::set(t, i, scale * (2 * uniform_open(words[static_cast<std::size_t>(i % 4)]) - 1));
    }
    return t;
  }

  Tensor tensor(Operand o) const { return declared_[static_cast<std::size_t>(o.index)].before; }
  Doubles operator[](Operand o) const { return doubles(tensor(o)); }
  const std::vector<DeclaredOperand>& declared() const { return declared_; }
  const std::vector<std::pair<Operand, Operand>>& aliases() const { return aliases_; }

 private:
  using Role = DeclaredOperand::Role;
  Operand add(const DeclaredOperand& declared) {
    declared_.push_back(declared);
    return {static_cast<int>(declared_.size()) - 1};
  }

  int pattern_, coins_ = 0;
  std::vector<DeclaredOperand> declared_;
  std::vector<std::pair<Operand, Operand>> aliases_;
};

struct OperatorCase {
  std::string name = {};
  std::vector<Sizes> fixed = {};                // shapes that are always checked on the CPU
  std::vector<Sizes> on_gpu = {};               // and on a GPU
  std::function<Sizes(Draw&)> draw_sizes = {};  // draws `seeds` more shapes
  std::function<void(Operator&)> make = {};
  std::string suffix = {};    // ends the names of its tests
  DType dtype = DType::fp32;  // becomes Operator::dtype
  int seeds = 16;
};

// Declares the tests of a case; the program's operator_test.cpp defines it.
bool register_operator(const OperatorCase& c);

// The limit for the device that this program runs on.
struct Limits {
  std::int64_t cpu = 0, simulated = 0, real = 0;  // kernels of the CPU; a GPU, simulated or real
};
std::int64_t most(const Limits& limits);

// Registers a case for fp32 and one for bf16.
inline bool register_for_types(OperatorCase c) {
  for (const auto dtype : {DType::fp32, DType::bf16}) {
    c.dtype = dtype;
    c.suffix = str("_", name(dtype));
    register_operator(c);
  }
  return true;
}

// Draws a width that is a multiple of a pack, or any. On a GPU its rows take one warp or several.
inline std::int64_t draw_width(Draw& draw, std::int64_t most_on_cpu) {
  if (!is_on_gpu()) return draw.size(most_on_cpu);
  return draw.coin() ? draw.size(80) : 8 * draw.between(1, 300);
}
// Draws n ids in [0, rows).
inline std::vector<std::int32_t> draw_below(Draw& draw, std::int64_t n, std::int64_t rows) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<std::int32_t>(draw.between(0, rows - 1)));
  return ids;
}
inline double root(std::int64_t n) {
  return std::sqrt(static_cast<double>(n));
}
inline double highest(const Doubles& x) {
  return *std::max_element(x.begin(), x.end());
}
inline double rounded_to(DType dtype, double x) {
  const auto value = static_cast<float>(x);
  return static_cast<double>(dtype == DType::bf16 ? to_float(to_bf16(value)) : value);
}

// FunctionTest is a test that is registered without a macro.
class FunctionTest : public ::testing::Test {
 public:
  explicit FunctionTest(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  std::function<void()> body_;
};
inline void register_test(const std::string& suite, const std::string& name,
                          const std::function<void()>& body) {
  ::testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [body]() -> ::testing::Test* { return new FunctionTest(body); });
}

// `act` throws an Error that has `part` in its message.
template <class Act>
void expect_refused(const std::string& part, Act&& act) {
  try {
    act();
    ADD_FAILURE() << "accepted, expected: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

}  // namespace lockstep::testing
