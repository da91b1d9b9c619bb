// Checks every property of an operator on the CPU:
//   - It equals its reference, and its absmax is exact.
//   - It gives the same bits with any number of threads, and if an output is stored in an input.
//   - It changes no input and allocates nothing.
//   - A measuring stream counts its scratch and changes no tensor.
#include "tests/allocations.h"
#include "tests/kernels/operator_case.h"

namespace lockstep::testing {

std::int64_t most(const Limits& limits) {
  return limits.cpu;
}
bool is_on_gpu() {
  return false;
}

namespace {

using Role = DeclaredOperand::Role;
using Alias = std::pair<Operand, Operand>;

// A stream with 1 to 3 threads, which all tests share.
Stream& stream_of(int threads) {
  static Stream streams[] = {{Device{}, "test", Stream::Mode::immediate, 1},
                             {Device{}, "test", Stream::Mode::immediate, 2},
                             {Device{}, "test", Stream::Mode::immediate, 3}};
  return streams[threads - 1];
}

class OperatorCheck {
 public:
  explicit OperatorCheck(Operator& o) : o_(o) {}

  void all(int threads) {
    const auto first = run(threads, {});
    for_each([&](const DeclaredOperand& d, std::size_t i) {
      if (d.role == Role::in)
        expect_bitwise_equal(first[i], d.before, str("input ", i, ", which must not change,"));
      if (d.absmax_of) expect_absmax(first[i], first[static_cast<std::size_t>(d.absmax_of.index)]);
    });
    const Results results(o_.declared(), first, o_.is_fixed());
    EXPECT_TRUE(o_.expect_on_cpu || o_.expect_anywhere) << "the case expects nothing";
    if (o_.expect_on_cpu) o_.expect_on_cpu(results);
    if (o_.expect_anywhere) o_.expect_anywhere(results);
    for_each([&](const DeclaredOperand& d, std::size_t i) {
      if (d.parts.empty() || !d.parts.front().bound.is_compared) return;
      EXPECT_TRUE(results.is_checked({static_cast<int>(i)}))
          << "the case checks no value of " << d.parts.front().name;
    });

    const auto& aliases = o_.aliases();
    for (std::size_t again = 0; again < std::max<std::size_t>(2, aliases.size()); ++again) {
      const int others = 1 + (threads + static_cast<int>(again) % 2) % 3;
      const auto alias = again < aliases.size() ? aliases[again] : Alias{};
      const Arena::Scope scope(o_.b.arena);
      const auto second = run(others, alias);
      for_each([&](const DeclaredOperand& d, std::size_t i) {
        if (d.role != Role::in)
          expect_bitwise_equal(second[i], first[i],
                               str("output ", i, " of ", others, " threads",
                                   alias.first.index == static_cast<int>(i)
                                       ? str(", in the place of ", alias.second.index, ",")
                                       : ""));
      });
    }
  }

 private:
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < o_.declared().size(); ++i)
      visit(o_.declared()[i], i);
  }

  // Calls the operator on a measuring stream, then on a real one. Returns the tensors after that.
  std::vector<Tensor> run(int threads, const Alias& alias) const {
    std::vector<Tensor> tensors;
    for_each(
        [&](const DeclaredOperand& d, std::size_t) { tensors.push_back(o_.b.copy(d.before)); });
    if (alias.first)
      tensors[static_cast<std::size_t>(alias.first.index)] =
          tensors[static_cast<std::size_t>(alias.second.index)];
    Arena counted = Arena::measure(Device{});
    Stream measuring(Device{}, "measure", Stream::Mode::measuring, threads);
    o_.call({measuring, counted, tensors});
    for_each([&](const DeclaredOperand& d, std::size_t i) {
      if (alias.first.index != static_cast<int>(i))
        expect_bitwise_equal(tensors[i], d.before, str("tensor ", i, " of a measuring stream"));
    });

    Arena scratch(Device{}, Arena::Memory::host, counted.peak_bytes());
    const On on{stream_of(threads), scratch, tensors};
    const auto before = allocations();
    o_.call(on);
    EXPECT_EQ(allocations() - before, 0) << "allocations";
    EXPECT_EQ(scratch.peak_bytes(), counted.peak_bytes()) << "scratch";
    EXPECT_GE(scratch.peak_bytes(), o_.takes_scratch ? 1 : 0) << "scratch";
    return tensors;
  }

  Operator& o_;
};

// Returns the number of options.
int check(const OperatorCase& c, const Sizes& sizes, Draw& draw, int pattern) {
  const int threads = pattern < 0 ? static_cast<int>(draw.between(1, 3)) : 2;
  static Bench b;
  b.seed = draw.seed();
  b.draws = 0;
  const Arena::Scope scope(b.arena);
  Operator o(b, draw, sizes, c.dtype, pattern);
  std::string text = str("options ", pattern, ", sizes");
  for (const auto size : sizes)
    text += str(" ", size);
  SCOPED_TRACE(text);
  c.make(o);
  OperatorCheck(o).all(threads);
  return o.coins();
}

void check_fixed(const OperatorCase& c) {
  for (const auto& sizes : c.fixed) {
    int coins = 0;
    for (int pattern = 0; pattern < Operator::patterns_of(coins); ++pattern) {
      Draw draw(1);
      coins = std::max(coins, check(c, sizes, draw, pattern));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace

bool register_operator(const OperatorCase& c) {
  const auto check_drawn = [c](Draw& draw) {
    const auto sizes = c.draw_sizes(draw);
    check(c, sizes, draw, -1);
  };
  if (!c.fixed.empty())
    register_test(c.name, "properties_hold_for_fixed_shapes" + c.suffix, [c] { check_fixed(c); });
  if (c.draw_sizes) {
    register_test(c.name, "properties_hold_for_drawn_shapes" + c.suffix,
                  [=] { for_seeds(1, c.seeds, check_drawn); });
    register_test(c.name, "full_properties_hold_for_drawn_shapes" + c.suffix,
                  [=] { many_draws(check_drawn); });
  }
  return true;
}

}  // namespace lockstep::testing
