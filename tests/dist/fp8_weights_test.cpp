// fp8 copies of weights: in each layout, every rank has the fp8 values and scales of a single rank.
#include "dist/fp8_weights.h"

#include "dist/param_store.h"
#include "kernels/elementwise.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"
#include "tests/wording.h"

namespace lockstep::testing::fp8_weights_test {

constexpr std::int64_t kRows = 256, kColumns = 128;

// Layers holds three layers. Each has a stacked matrix that tensor ranks divide by rows, one that
// they divide by columns, and a vector.
struct Layers {
  explicit Layers(Comms& comms, Fp8Matmuls fp8, Sharding sharding = Sharding::full)
      : params(comms, {.sharding = sharding,
                       .compute_dtype = DType::bf16,
                       .stochastic_rounding = true,
                       .fp8 = fp8}) {
    for (const std::string layer : {"first ", "second ", "third "}) {
      const int unit = params.add_unit(layer, Keep::layers);
      const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t columns, int dim) {
        return ParamSpec{.name = layer + name,
                         .shape = {rows, columns},
                         .tensor_dim = dim,
                         .init_std = 0.02f,
                         .quantized = true};
      };
      params.declare(unit, {.name = layer + "norm", .shape = {kColumns}, .init = Init::ones});
      in = params.declare_stacked(
          unit, {matrix("gate", kRows, kColumns, 0), matrix("up", kRows, kColumns, 0)});
      out = params.declare(unit, matrix("down", kColumns, kRows, 1));
    }
    params.allocate(bench.arena, bench.stream);
    params.initialize(bench.stream, 3);
  }

  // Multiplies the weights of this rank by 4 and stores their magnitudes, as an optimizer does.
  void update() {
    if (params.weight_absmax()) fill(bench.stream, params.weight_absmax(), 0.0f);
    for (const auto& shard : params.shards())
      for (const auto& segment : shard.segments) {
        const auto most = params.weight_absmax(segment.id);
        for (auto i = segment.shard_begin; i < segment.shard_begin + segment.count; ++i) {
          Bench::set(shard.weight, i, 4 * get(shard.weight, i));
          if (most) Bench::set(most, 0, std::max(get(most, 0), std::abs(get(shard.weight, i))));
        }
      }
    params.weights_changed(bench.stream);
  }

  Bench bench{.threads = 1, .host_bytes = std::int64_t{8} << 20};
  ParamStore params;
  std::vector<ParamId> in;
  ParamId out;
};

std::byte code(ConstFp8Matrix m, std::int64_t row, std::int64_t column) {
  return m.q.data[row * m.q.shape[1] + column];
}
double scale(ConstFp8Matrix m, std::int64_t row, std::int64_t column) {
  if (m.scaling == Scaling::tensor) return get(m.scales, 0);
  return get(m.scales, row / kScaledBlock * m.scales.shape[1] + column / kScaledBlock);
}

// Row r of tensor rank t is row place(r) of the whole matrix. A stacked matrix has `part` rows of
// each of its two parts. Columns are treated like rows.
void expect_part_of(Layers& mine, Layers& all, int unit, int t, int tensors) {
  const auto use = mine.params.use(unit, mine.bench.stream);
  const auto use_all = all.params.use(unit, all.bench.stream);
  const auto expect = [&](ParamId id, bool by_rows) {
    id.unit = unit;
    const auto found = use.quantized(id), expected = use_all.quantized(id);
    const auto part = kRows / tensors;
    const auto place = [&](std::int64_t i) { return i / part * kRows + t * part + i % part; };
    for (std::int64_t r = 0; r < found.weight.q.shape[0]; ++r)
      for (std::int64_t c = 0; c < found.weight.q.shape[1]; ++c) {
        const auto R = by_rows ? place(r) : r, C = by_rows ? c : place(c);
        ASSERT_EQ(code(found.weight, r, c), code(expected.weight, R, C)) << r << ", " << c;
        ASSERT_EQ(code(found.transposed, c, r), code(found.weight, r, c)) << r << ", " << c;
        ASSERT_EQ(scale(found.weight, r, c), scale(expected.weight, R, C)) << r << ", " << c;
        ASSERT_EQ(scale(found.transposed, c, r), scale(found.weight, r, c)) << r << ", " << c;
      }
  };
  expect(mine.in.front(), true);
  expect(mine.out, false);
}

struct Case {
  Mesh mesh;
  Sharding sharding = Sharding::full;
};

class Fp8Ranks : public ::testing::TestWithParam<std::tuple<Fp8Matmuls, Case>> {};
INSTANTIATE_TEST_SUITE_P(
    all, Fp8Ranks,
    ::testing::Combine(::testing::Values(Fp8Matmuls::tensor, Fp8Matmuls::block),
                       ::testing::Values(Case{Mesh{.shard = 3}, Sharding::optimizer},
                                         Case{Mesh{.shard = 2}, Sharding::gradients},
                                         Case{Mesh{.shard = 4}},
                                         Case{Mesh{.replicate = 2, .shard = 2}},
                                         Case{Mesh{.tensor = 2}},
                                         Case{Mesh{.replicate = 2, .shard = 2, .tensor = 2}})),
    [](const auto& c) {
      const Mesh& mesh = std::get<1>(c.param).mesh;
      return str(std::get<0>(c.param) == Fp8Matmuls::tensor ? "tensor" : "block", "_r",
                 mesh.replicate, "_s", mesh.shard, "_t", mesh.tensor);
    });

TEST_P(Fp8Ranks, have_the_fp8_values_and_scales_of_one_rank) {
  const auto& [fp8, layout] = GetParam();
  run_thread_ranks(layout.mesh.world(), [&, fp8 = fp8, layout = layout](World& world) {
    auto one = make_comms(), comms = make_comms(world, layout.mesh);
    Layers all(one, fp8), mine(comms, fp8, layout.sharding);
    const auto expect = [&] {
      for (const int unit : {0, 1, 2, 0})  // two buffers take turns
        expect_part_of(mine, all, unit, comms.tensor->rank(), comms.tensor->size());
    };
    expect();
    all.update();
    mine.update();
    expect();
  });
}

TEST(Fp8Weights, units_with_the_same_buffer_share_memory) {
  ParamLayout layout({});
  std::vector<std::size_t> buffers;
  for (const std::int64_t rows : {128, 256, 128, 384}) {
    const int unit = layout.add_unit("unit", Keep::layers);
    layout.declare_stacked(unit, {{.name = "w", .shape = {rows, 128}, .quantized = true}});
    buffers.push_back(static_cast<std::size_t>(unit % 2));
  }
  layout.lay_out();
  Fp8Weights weights(layout, Fp8Matmuls::tensor);
  Arena arena(Device{}, Arena::Memory::host, 1 << 20);
  weights.allocate(arena, buffers);
  const auto bytes = [](std::int64_t rows) { return 2 * (rows * 128 + 256); };
  EXPECT_EQ(arena.used_bytes(), bytes(128) + bytes(384) + 256);
  EXPECT_EQ(weights.find({1, 0})->weight.q.data, weights.find({3, 0})->weight.q.data);
  EXPECT_NE(weights.find({0, 0})->weight.q.data, weights.find({1, 0})->weight.q.data);
  EXPECT_EQ(weights.absmax().elements(), 4);
  EXPECT_EQ(weights.find({.unit = 0, .index = 1}), nullptr);
}

TEST(Fp8Weights, sizes_without_fp8_matmuls_are_rejected) {
  const auto refused = [](const std::string& name, std::initializer_list<std::string> pins,
                          const Shape& shape, int tensors, Fp8Matmuls fp8) {
    ParamLayout layout({.tensors = tensors});
    layout.declare_stacked(layout.add_unit("unit", Keep::own),
                           {{.name = "k", .shape = shape, .tensor_dim = 0, .quantized = true},
                            {.name = "v", .shape = shape, .tensor_dim = 0, .quantized = true}});
    layout.lay_out();
    Arena arena(Device{}, Arena::Memory::host, 1 << 20);
    const std::vector<std::size_t> buffers{0};
    expect_refusal<Error>("dist/fp8_weights", name, pins,
                          [&] { Fp8Weights(layout, fp8).allocate(arena, buffers); });
  };
  refused("tensor", {"k ", "[48, 24]", "16"}, {24, 24}, 1, Fp8Matmuls::tensor);
  refused("block", {"k ", "64", "2", "128"}, {128, 128}, 2, Fp8Matmuls::block);
}

}  // namespace lockstep::testing::fp8_weights_test
