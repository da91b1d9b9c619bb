// Compares each operator on a GPU with the CPU, see tests/kernels/operator_case.h:
//   - Outputs are within their bounds.
//   - A second run gives the same bits, with an output stored in an input if that is allowed.
//   - No input changes, and absmax is exact on each side.
//   - A measuring stream counts the scratch.
#include "tests/cuda/twins.h"
#include "tests/kernels/operator_case.h"

namespace lockstep::testing {

std::int64_t most(const Limits& limits) {
  return CudaTest::most(limits.simulated, limits.real);
}
bool is_on_gpu() {
  return true;
}

namespace {

using Role = DeclaredOperand::Role;

// Returns the number of options.
int check(const OperatorCase& c, const Sizes& sizes, Draw& draw, int pattern) {
  Twins t(draw.seed());
  Operator o(t.bench(), draw, sizes, c.dtype, pattern);
  std::string text = str("options ", pattern, ", sizes");
  for (const auto size : sizes)
    text += str(" ", size);
  SCOPED_TRACE(text);
  c.make(o);

  const auto& declared = o.declared();
  std::vector<Tensor> host, device;
  for (const auto& d : declared) {
    host.push_back(t.bench().copy(d.before));
    device.push_back(t.add(d.before).device);
  }
  o.call({t.bench().stream, t.bench().arena, host});

  constexpr Device kGpu{Device::Kind::cuda, 0};
  Arena counted = Arena::measure(kGpu);
  Stream measuring(kGpu, "measure", Stream::Mode::measuring);
  o.call({measuring, counted, device});
  Arena scratch(kGpu, Arena::Memory::device, counted.peak_bytes());
  const auto run = [&](const std::vector<Tensor>& tensors) {
    for (std::size_t i = 0; i < declared.size(); ++i)
      t.upload(device[i], declared[i].before);
    o.call({t.stream(), scratch, tensors});
    std::vector<Tensor> after;
    for (const auto& tensor : tensors)
      after.push_back(t.download(tensor));
    return after;
  };
  const auto first = run(device);
  EXPECT_EQ(scratch.peak_bytes(), counted.peak_bytes()) << "scratch";
  EXPECT_GE(scratch.peak_bytes(), o.takes_scratch ? 1 : 0) << "scratch";
  auto aliased = device;
  const auto& aliases = o.aliases();
  if (const auto i = draw.between(0, static_cast<std::int64_t>(aliases.size())); i > 0) {
    const auto [output, input] = aliases[static_cast<std::size_t>(i - 1)];
    aliased[static_cast<std::size_t>(output.index)] = device[static_cast<std::size_t>(input.index)];
  }
  const auto second = run(aliased);

  for (std::size_t i = 0; i < declared.size(); ++i) {
    const auto& d = declared[i];
    if (d.role == Role::in) {
      expect_bitwise_equal(first[i], d.before, str("input ", i, ", which must not change,"));
      continue;
    }
    expect_bitwise_equal(second[i], first[i], str("run again: output ", i));
    if (d.absmax_of) {
      const auto of = static_cast<std::size_t>(d.absmax_of.index);
      expect_absmax(host[i], host[of]);
      expect_absmax(first[i], first[of]);
    } else if (d.parts.front().bound.same_bits) {
      expect_bitwise_equal(first[i], host[i], d.parts.front().name);
    } else {
      expect_parts(first[i], doubles(host[i]), d.parts, true, false);
    }
    if (!d.parts.empty() && d.parts.front().bound.rounds_alike) {
      std::int64_t differ = 0;
      for (std::int64_t j = 0; j < first[i].elements(); ++j)
        differ += get(first[i], j) != get(host[i], j) ? 1 : 0;
      EXPECT_LE(differ, 1 + first[i].elements() / 100) << d.parts.front().name;
    }
  }
  if (o.expect_anywhere) o.expect_anywhere(Results(declared, first, false));
  return o.coins();
}

}  // namespace

bool register_operator(const OperatorCase& c) {
  if (c.on_gpu.empty() && !c.draw_sizes) return true;
  register_test(c.name + "Cuda", "equals_the_cpu_kernel" + c.suffix, [c] {
    // Runs each shape with all options off and all on. If there are more than four shapes, the
    // simulated GPU runs each shape with one of the two, which alternate over every four shapes.
    const bool all = c.on_gpu.size() <= 4 || most({.real = 1}) > 0;
    for (std::size_t i = 0; i < c.on_gpu.size(); ++i)
      for (const bool on : {false, true}) {
        if (!all && on != ((i + i / 4) % 2 == 1)) continue;
        int coins = 0;
        for_seeds(i + 1, 1, [&](Draw& draw) {
          coins = check(c, c.on_gpu[i], draw, on ? Operator::kPatterns - 1 : 0);
        });
        if (coins == 0) break;
      }
    // Runs all shapes, even after a failure, because tests/gpu/budgets.py reads all launches.
    for (std::uint64_t seed = 1; c.draw_sizes && seed <= static_cast<std::uint64_t>(c.seeds);
         ++seed) {
      SCOPED_TRACE(str("seed ", seed));
      Draw draw(seed);
      const auto sizes = c.draw_sizes(draw);
      check(c, sizes, draw, -1);
    }
  });
  return true;
}

}  // namespace lockstep::testing
