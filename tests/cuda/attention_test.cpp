#include "kernels/attention.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing {
namespace {

struct AttentionCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, AttentionCuda, kFloatTypes, dtype_name);

struct Sizes {
  std::int64_t B, T, H, G, K;
  std::int64_t N() const { return B * T; }
  Shape qkv() const { return {N(), H + 2 * G, K}; }
  Shape out() const { return {N(), H, K}; }
};

// Head sizes of the tensor cores' kernels and others.
std::int64_t draw_head_size(Draw& draw) {
  switch (draw.between(0, 3)) {
    case 0: return 64;
    case 1: return 128;
    case 2: return 8 * draw.between(1, 20);
    default: return draw.size(140);
  }
}

// Several blocks of queries and of keys: those of tensor cores have up to 128 tokens, others 32.
// What is simulated has few heads where there are many tokens.
Sizes draw_sizes(Draw& draw, DType dtype, std::int64_t simulated, std::int64_t real) {
  const auto K = draw_head_size(draw);
  const bool tensor_cores = dtype == DType::bf16 && (K == 64 || K == 128);
  const auto most = CudaTest::most(tensor_cores ? simulated : simulated / 4, real);
  const auto T = draw.coin() ? draw.size(most) : draw.between(1, most);
  const bool few = T > simulated / 4;
  const auto G = draw.between(1, few ? 1 : 2);
  return {few ? 1 : draw.between(1, 2), T, G * draw.between(1, few ? 2 : 3), G, K};
}

// One document a sequence; or documents of up to `longest` tokens.
Twin documents(Twins& t, Draw& draw, const Sizes& s) {
  std::vector<std::int32_t> starts;
  const bool whole = draw.coin();
  const auto longest = draw.size(s.T);
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t token = 0, start = 0, length = draw.between(1, longest); token < s.T;
         ++token) {
      if (!whole && token == start + length) {
        start = token;
        length = draw.between(1, longest);
      }
      starts.push_back(static_cast<std::int32_t>(start));
    }
  return t.integers(starts, {s.B, s.T});
}

TEST_P(AttentionCuda, forward_equals_the_cpu_kernel) {
  for_seeds(1, 8, [&](Draw& draw) {
    Twins t(draw.seed());
    const auto s = draw_sizes(draw, GetParam(), 300, 3000);
    SCOPED_TRACE(str("B ", s.B, " T ", s.T, " H ", s.H, " G ", s.G, " K ", s.K));
    const auto qkv = t.random(s.qkv(), GetParam(), 2.0f), starts = documents(t, draw, s);
    const auto out = t.poisoned(s.out(), GetParam());
    const auto lse = t.poisoned({s.H, s.N()}, DType::fp32);
    t.run([&](const Side& on) {
      attention_forward(on.stream, on.scratch, on(out), on(lse), on(qkv), on(starts));
    });
    t.expect_close(out, "out");
    t.expect_close(lse, "lse", 1);
  });
}

// Heads [first, first + count) of each token of a tensor shaped like qkv.
Doubles heads_of(const Doubles& values, const Sizes& s, std::int64_t first, std::int64_t count) {
  Doubles part;
  for (std::int64_t n = 0; n < s.N(); ++n) {
    const auto from = values.begin() + (n * (s.H + 2 * s.G) + first) * s.K;
    part.insert(part.end(), from, from + count * s.K);
  }
  return part;
}

// dq and dk come from the difference of dout v and dout out, into which the rounding of out enters:
// twice the tolerance.
TEST_P(AttentionCuda, backward_equals_the_cpu_kernel) {
  for_seeds(1, 8, [&](Draw& draw) {
    Twins t(draw.seed());
    const auto s = draw_sizes(draw, GetParam(), 300, 2000);
    SCOPED_TRACE(str("B ", s.B, " T ", s.T, " H ", s.H, " G ", s.G, " K ", s.K));
    const auto qkv = t.random(s.qkv(), GetParam(), 2.0f), starts = documents(t, draw, s);
    const auto dout = t.random(s.out(), GetParam()), out = t.poisoned(s.out(), GetParam());
    const auto lse = t.poisoned({s.H, s.N()}, DType::fp32);
    const auto dqkv = t.poisoned(s.qkv(), GetParam());
    t.run([&](const Side& on) {
      if (on.is_host)
        attention_forward(on.stream, on.scratch, on(out), on(lse), on(qkv), on(starts));
    });
    t.upload(out.device, out.host);  // both sides start from the same
    t.upload(lse.device, lse.host);
    t.run([&](const Side& on) {
      attention_backward(on.stream, on.scratch, on(dqkv), on(dout), on(out), on(lse), on(qkv),
                         on(starts));
    });
    const auto actual = doubles(t.download(dqkv.device)), expected = doubles(dqkv.host);
    const auto compare = [&](const char* what, double bound, std::int64_t first,
                             std::int64_t count) {
      expect_close(heads_of(actual, s, first, count), heads_of(expected, s, first, count), bound,
                   what, 1);
    };
    compare("dq", 2 * tolerance(GetParam()), 0, s.H);
    compare("dk", 2 * tolerance(GetParam()), s.H, s.G);
    compare("dv", tolerance(GetParam()), s.H + s.G, s.G);
  });
}

// Prefill in one or two pieces, then a few tokens at a time; sequences stand at different places.
TEST_P(AttentionCuda, cached_equals_the_cpu_kernel) {
  for_seeds(1, 8, [&](Draw& draw) {
    Twins t(draw.seed());
    auto s = draw_sizes(draw, GetParam(), 300, 1000);
    SCOPED_TRACE(str("B ", s.B, " T ", s.T, " H ", s.H, " G ", s.G, " K ", s.K));
    const auto C = s.T + draw.between(20, 300);
    const auto keys = t.poisoned({s.B, C, s.G, s.K}, GetParam());
    const auto values = t.poisoned({s.B, C, s.G, s.K}, GetParam());
    std::vector<std::int64_t> done(static_cast<std::size_t>(s.B), 0);
    for (const auto count : {s.T, std::int64_t{1}, draw.between(2, 7), draw.between(8, 12)}) {
      const Sizes now{s.B, count, s.H, s.G, s.K};
      const auto qkv = t.random(now.qkv(), GetParam(), 2.0f);
      const auto out = t.poisoned(now.out(), GetParam());
      std::vector<std::int32_t> positions;
      for (auto& d : done) {
        for (std::int64_t i = 0; i < count; ++i)
          positions.push_back(static_cast<std::int32_t>(d + i));
        d += count - (d == 0 && count > 1 ? draw.between(0, 1) : 0);  // the last one again, or not
      }
      const auto where = t.integers(positions, {s.B, count});
      t.run([&](const Side& on) {
        attention_cached(on.stream, on.scratch, on(out), {on(keys), on(values)}, on(qkv),
                         on(where));
      });
      t.expect_close(out, "out");
      t.expect_equal(keys, "keys");
      t.expect_equal(values, "values");
    }
  });
}

}  // namespace
}  // namespace lockstep::testing
