#include "launch/plan/time_model.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "core/json.h"
#include "core/philox.h"
#include "launch/plan/step_time.h"
#include "tests/bench/published_engine.h"
#include "tests/train/layout_rig.h"

namespace lockstep::testing::prices_test {

// Two programs in float64 add the same numbers in another order.
constexpr double kRelative = 1e-9;

// tests/oracle/make_prices_fixture.py wrote it from the fitted model.
const Json& fixture() {
  static const Json json = Json::parse(
      read_text(std::filesystem::path(LOCKSTEP_FIXTURES) / "prices.json", 1 << 20), "prices.json");
  return json;
}

// A GPU and an engine with the numbers of a case.
TimeModel time_model_of(const Json& one) {
  const auto number = [&](const char* key) { return one.at("gpu").at(key).as_double(); };
  Hardware hardware{.name = "a GPU"};
  hardware.bf16_flops = number("bf16");
  hardware.multiprocessors = static_cast<int>(number("multiprocessors"));
  hardware.hbm_bytes_per_second = number("hbm");
  hardware.nvlink_bytes_per_second = number("nvlink");
  hardware.nic_bytes_per_second = number("nic");
  hardware.sustained = number("sustained");
  hardware.power = number("power");
  EngineEfficiency engine;
  engine.products = number("products");
  engine.attention.fill(number("attention"));
  engine.attention_backward = number("attention_backward");
  engine.network = number("network");
  engine.node_hop_seconds = number("node_hop");
  engine.node_level_seconds = number("node_level");
  engine.fp8_gain = number("fp8_gain");
  engine.rowwise_gain = number("rowwise_gain");
  engine.tile_steps = number("tile_steps");
  engine.head_exponent = number("head_exponent");
  return TimeModel(hardware, engine);
}

Arithmetic arithmetic_of_name(const std::string& text) {
  if (text == "fp8_rowwise") return Arithmetic::fp8_rowwise;
  return text == "fp8" ? Arithmetic::fp8 : Arithmetic::bf16;
}

void expect_same(double found, double expected, const std::string& what) {
  EXPECT_NEAR(found, expected, kRelative * std::abs(expected)) << what;
}

Op op_of(Op::Kind kind, const char* op_name, std::int64_t bytes) {
  Op op;
  op.name = op_name;
  op.kind = kind;
  op.bytes = bytes;
  op.dtype = DType::bf16;
  return op;
}

// ------------------------------------------------------------------------ as the second program

TEST(TimeModel, of_matmuls_equal_the_oracle) {
  for (const Json& one : fixture().at("products").as_array()) {
    const auto call =
        matmul_call(one.at("M").as_double(), one.at("N").as_double(), one.at("K").as_double(),
                    arithmetic_of_name(one.at("dtype").as_string()));
    expect_same(time_model_of(one).matmul_seconds(call), one.at("seconds").as_double(), one.dump());
  }
}

TEST(TimeModel, of_attention_equal_the_oracle) {
  for (const Json& one : fixture().at("attentions").as_array()) {
    const TimeModel time_model = time_model_of(one);
    const auto& seconds = one.at("seconds").as_array();
    AttentionCall call{.flops = one.at("flops").as_double(),
                       .sequence = one.at("sequence").as_double(),
                       .head_size = one.at("head").as_double()};
    expect_same(time_model.attention_seconds(call), seconds[0].as_double(), one.dump());
    call.flops *= 2.5;
    call.is_backward = true;
    expect_same(time_model.attention_seconds(call), seconds[1].as_double(), one.dump());
  }
}

// The operators of attention log these names.
TEST(TimeModel, of_lockstep_attention_are_those_of_flash_attention_2) {
  const auto ratio = [](const char* gpu, DType dtype, const std::string& direction) {
    const TimeModel time_model(*find_hardware(gpu));
    Op op = op_of(Op::Kind::attention, "", 0);
    op.dtype = dtype;
    op.flops = 1e12;
    op.sizes = {1, 8192, 32, 128};
    const auto own = "attention_" + direction, cudnn = "cudnn_" + own;
    op.name = own.c_str();
    const double seconds = time_model.seconds(op, 1);
    op.name = cudnn.c_str();
    return seconds / time_model.seconds(op, 1);
  };
  const double fitted = PublishedConstants().flash2_hopper;
  EXPECT_DOUBLE_EQ(ratio("NVIDIA H100", DType::bf16, "forward"), 1 / fitted);
  EXPECT_DOUBLE_EQ(ratio("NVIDIA H100", DType::bf16, "backward"), 7.0 / 5 / fitted);
  EXPECT_DOUBLE_EQ(ratio("NVIDIA A100", DType::bf16, "forward"), 1);
  EXPECT_DOUBLE_EQ(ratio("NVIDIA H100", DType::fp32, "backward"), 1) << "cuDNN has none";
}

TEST(TimeModel, of_collectives_equal_the_oracle) {
  for (const Json& one : fixture().at("collectives").as_array()) {
    const TimeModel time_model = time_model_of(one);
    const double bytes = one.at("total").as_double();
    const auto ranks = static_cast<int>(one.at("ranks").as_integer());
    const auto inside = static_cast<int>(one.at("inside").as_integer());
    expect_same(time_model.gather_seconds(bytes, ranks, inside, one.at("calls").as_double()),
                one.at("gather").as_double(), one.dump());
    expect_same(time_model.all_reduce_seconds(bytes, ranks, inside, one.at("bucket").as_double()),
                one.at("all_reduce").as_double(), one.dump());
  }
}

// --------------------------------------------------------------------------------------- monotony

// Copies of `hardware`, each with one of its rates doubled.
std::vector<Hardware> better(const Hardware& hardware) {
  constexpr std::array kRates{&Hardware::bf16_flops,
                              &Hardware::fp8_flops,
                              &Hardware::fp32_flops,
                              &Hardware::hbm_bytes_per_second,
                              &Hardware::nvlink_bytes_per_second,
                              &Hardware::nic_bytes_per_second,
                              &Hardware::host_bytes_per_second};
  std::vector<Hardware> all;
  for (const auto rate : kRates) {
    all.push_back(hardware);
    all.back().*rate *= 2;
  }
  return all;
}

class Draws {
 public:
  std::int64_t upto(std::int64_t most) {
    return 1 + static_cast<std::int64_t>(philox(20, 1, ++count_)[0]) % most;
  }

 private:
  std::uint64_t count_ = 0;
};

// A call of each kind, of random sizes.
std::vector<Op> random_ops(Draws& draws) {
  std::vector<Op> ops;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp8_e4m3}) {
    ops.push_back(op_of(Op::Kind::product, "matmul_forward", draws.upto(1 << 30)));
    ops.back().dtype = dtype;
    ops.back().sizes = {draws.upto(40000), draws.upto(40000), draws.upto(40000)};
  }
  for (const char* op_name : {"attention_forward", "cudnn_attention_backward"}) {
    ops.push_back(op_of(Op::Kind::attention, op_name, 1));
    ops.back().flops = 1e6 * static_cast<double>(draws.upto(1 << 24));
    ops.back().sizes = {1, draws.upto(65536), 8, 32 * draws.upto(8)};
  }
  ops.push_back(op_of(Op::Kind::memory, "rmsnorm_forward", draws.upto(1 << 30)));
  ops.push_back(op_of(Op::Kind::transfer, "transfer", draws.upto(1 << 30)));
  for (std::size_t kind = 0; kind < kCollectives; ++kind) {
    ops.push_back(
        op_of(Op::Kind::collective, name(static_cast<Collective>(kind)), draws.upto(1 << 30)));
    ops.back().ranks = static_cast<int>(draws.upto(512));
  }
  return ops;
}

TEST(TimeModel, are_positive_and_never_rise_with_faster_hardware) {
  Draws draws;
  for (int round = 0; round < 200; ++round)
    for (const Op& op : random_ops(draws))
      for (const Hardware& hardware : known_hardware()) {
        if (op.dtype == DType::fp8_e4m3 && hardware.fp8_flops == 0) continue;
        const auto inside = static_cast<int>(draws.upto(8));
        const double seconds = TimeModel(hardware).seconds(op, inside);
        const bool is_alone = op.kind == Op::Kind::collective && op.ranks == 1;
        EXPECT_EQ(seconds > 0, !is_alone) << op.name;
        for (const Hardware& faster : better(hardware))
          EXPECT_LE(TimeModel(faster).seconds(op, inside), seconds * (1 + 1e-12))
              << op.name << " on " << hardware.name;
      }
}

TEST(TimeModel, never_fall_with_the_size_of_a_call) {
  Draws draws;
  for (int round = 0; round < 200; ++round)
    for (const Op& op : random_ops(draws)) {
      const TimeModel time_model(known_hardware()[static_cast<std::size_t>(round) % 8]);
      if (op.dtype == DType::fp8_e4m3 && time_model.hardware().fp8_flops == 0) continue;
      const auto inside = static_cast<int>(draws.upto(8));
      Op more = op;
      more.bytes *= 2;
      more.flops *= 2;
      if (op.kind == Op::Kind::product)
        for (std::int64_t& size : more.sizes)
          size *= 2;
      EXPECT_GE(time_model.seconds(more, inside), time_model.seconds(op, inside)) << op.name;
    }
}

// --------------------------------------------------------------------------------- calls of a step

TEST(TimeModel, of_an_operator_follow_its_sizes) {
  const TimeModel time_model(*find_hardware("NVIDIA H100"));
  Op product = op_of(Op::Kind::product, "matmul_forward", 2 * (3 * 5 + 5 * 7 + 3 * 7));
  product.sizes = {3, 7, 5};
  EXPECT_DOUBLE_EQ(time_model.seconds(product, 1),
                   time_model.matmul_seconds(matmul_call(3, 7, 5, Arithmetic::bf16)));
  Op attention = op_of(Op::Kind::attention, "cudnn_attention_backward", 1);
  attention.flops = 5e12;
  attention.sizes = {2, 4096, 32, 64};
  EXPECT_DOUBLE_EQ(time_model.seconds(attention, 1),
                   time_model.attention_seconds(
                       {.flops = 5e12, .sequence = 4096, .head_size = 64, .is_backward = true}));
  EXPECT_DOUBLE_EQ(time_model.seconds(op_of(Op::Kind::memory, "swiglu_forward", 1 << 30), 1),
                   (1 << 30) / (0.85 * 3.35e12));
}

// A rank receives (d - 1) / d of the whole, and twice that for a sum.
TEST(TimeModel, of_collectives_follow_the_bytes_that_a_rank_receives) {
  const TimeModel time_model(*find_hardware("NVIDIA H100"));
  for (const int ranks : {2, 8, 64}) {
    const std::int64_t whole = std::int64_t{ranks} << 24, received = whole / ranks * (ranks - 1);
    Op gather = op_of(Op::Kind::collective, name(Collective::all_gather), received);
    Op sum = op_of(Op::Kind::collective, name(Collective::all_reduce), 2 * received);
    gather.ranks = sum.ranks = ranks;
    const auto bytes = static_cast<double>(whole);
    EXPECT_NEAR(time_model.seconds(gather, 8), time_model.gather_seconds(bytes, ranks, 8), 1e-15);
    EXPECT_NEAR(time_model.seconds(sum, 8), time_model.all_reduce_seconds(bytes, ranks, 8, bytes),
                1e-15);
  }
}

TEST(TimeModel, of_rings_with_one_gpu_per_host_need_no_nvlink) {
  Hardware hardware = *find_hardware("NVIDIA H100");
  const double with = TimeModel(hardware).gather_seconds(1e9, 16, 1);
  hardware.nvlink_bytes_per_second = 0;
  EXPECT_EQ(TimeModel(hardware).gather_seconds(1e9, 16, 1), with);
  EXPECT_EQ(TimeModel(hardware).lost_share({.ranks = 16}), 0);
}

TEST(TimeModel, the_lost_share_of_compute_depends_on_bytes_and_latency) {
  const Hardware& hardware = *find_hardware("NVIDIA H100");
  const TimeModel time_model(hardware);
  const auto lost = [&](Collective kind, double bytes, int ranks, int inside) {
    return time_model.lost_share({.kind = kind, .bytes = bytes, .ranks = ranks, .inside = inside});
  };
  const double large = 1e15, small = 1;
  EXPECT_EQ(lost(Collective::all_gather, large, 1, 1), 0);
  EXPECT_NEAR(lost(Collective::all_gather, large, 8, 8), hardware.slowdown, 1e-6);
  EXPECT_NEAR(lost(Collective::all_gather, large, 16, 8), hardware.slowdown * 331.2 / 370, 1e-6);
  // Two hosts have eight ranks each: 8 / 15 of a rank's bytes cross its own NIC, not eight NICs.
  EXPECT_NEAR(lost(Collective::all_to_all, large, 16, 8),
              hardware.slowdown * 46 * 0.9 * 15 / 8 / 370, 1e-6);
  EXPECT_EQ(lost(Collective::all_gather, small, 16, 8), hardware.slowdown * 0.18);
  EXPECT_EQ(lost(Collective::all_gather, large, 16, 1), hardware.slowdown * 0.18);
}

// docs/planning.md. Each peer in another domain costs 2 us, and a ring would cost 14 us a domain.
TEST(TimeModel, an_all_to_all_pays_for_each_peer) {
  const TimeModel time_model(*find_hardware("NVIDIA H100"));
  const auto latency = [&](int ranks, int inside) {
    return time_model.latency_seconds(
        {.kind = Collective::all_to_all, .bytes = 1, .ranks = ranks, .inside = inside});
  };
  EXPECT_DOUBLE_EQ(latency(64, 8), 158.2e-6);
  EXPECT_DOUBLE_EQ(latency(128, 1), (8.4 + 14 + 127 * 2) * 1e-6);
  EXPECT_DOUBLE_EQ(latency(8, 8), (8.4 + 7 * 3.4) * 1e-6);
}

TEST(TimeModel, copy_engines_move_large_data_inside_a_domain) {
  const TimeModel time_model(*find_hardware("NVIDIA H100"));
  const auto lost = [&](Collective kind, Group group, int inside) {
    Op op = op_of(Op::Kind::collective, name(kind), 1 << 30);
    op.group = group;
    op.ranks = 8;
    return time_model.lost_share(collective_call(op, inside));
  };
  for (const auto kind : {Collective::all_gather, Collective::all_to_all}) {
    EXPECT_EQ(lost(kind, Group::gathers, 8), 0);
    EXPECT_GT(lost(kind, Group::gathers, 4), 0) << "it spans two domains";
    EXPECT_GT(lost(kind, Group::all, 8), 0) << "its memory has no window";
  }
  EXPECT_GT(lost(Collective::all_reduce, Group::tensor, 8), 0) << "kernels add";
}

TEST(TimeModel, the_compute_lost_to_a_call_falls_with_a_faster_network) {
  Hardware hardware = *find_hardware("NVIDIA H100");
  for (const auto kind : {Collective::all_gather, Collective::all_to_all, Collective::all_reduce})
    for (const double bytes : {1e3, 1e6, 1e7, 1e8, 1e10})
      for (const int inside : {1, 2, 8}) {
        const CollectiveCall call{.kind = kind, .bytes = bytes, .ranks = 128, .inside = inside};
        double before = 1e300;
        for (double adapter = 1e9; adapter < 1e12; adapter *= 2) {
          hardware.nic_bytes_per_second = adapter;
          const TimeModel time_model(hardware);
          const double lost = time_model.lost_share(call) * time_model.collective_seconds(call);
          EXPECT_LE(lost, before * (1 + 1e-12)) << name(kind) << ' ' << bytes << ' ' << adapter;
          before = lost;
        }
      }
}

TEST(TimeModel, cover_every_group_and_call_of_a_step) {
  const Hardware& hardware = *find_hardware("NVIDIA H100");
  const TimeModel time_model(hardware);
  for (const Layout& layout : all_layouts()) {
    TrainingConfig config = tiny();
    config.model.heads = config.model.kv_heads = 8;
    config.mesh = layout.mesh;
    config.sharding = layout.sharding;
    config.global_batch_sequences = 32;
    const auto topology = topology_of_neighbours(config.mesh.world(), 4);
    const auto program = record_step(config, Device{}, 1, 0, &topology);
    const auto seconds = [&](const Op& op) {
      if (op.kind != Op::Kind::collective) return time_model.seconds(op, 1);
      const auto& place = program.place_of(op.group);
      return time_model.seconds(op, std::max(place.ranks / place.domains, 1));
    };
    EXPECT_GT(step_time(program, {.seconds = seconds}).total(), 0) << name_of(layout);
  }
}

// ------------------------------------------------------------------------------------- hardware

TEST(Hardware, is_found_by_the_name_that_the_driver_reports) {
  const auto found = [](std::string_view gpu) {
    const Hardware* hardware = find_hardware(gpu);
    return hardware == nullptr ? std::string() : hardware->name;
  };
  EXPECT_EQ(found("NVIDIA A100-SXM4-80GB"), "NVIDIA A100");
  EXPECT_EQ(found("NVIDIA A100-SXM4-40GB"), "NVIDIA A100-SXM4-40GB");
  EXPECT_EQ(found("NVIDIA H100 80GB HBM3"), "NVIDIA H100");
  EXPECT_EQ(found("NVIDIA H100 PCIe"), "NVIDIA H100 PCIe");
  EXPECT_EQ(found("NVIDIA H200"), "NVIDIA H200");
  EXPECT_EQ(found("NVIDIA B200"), "NVIDIA B200");
  EXPECT_EQ(found("NVIDIA GB200"), "NVIDIA GB200");
  EXPECT_EQ(found("NVIDIA A100-SXM-80GB"), "NVIDIA A100");
  EXPECT_EQ(found("NVIDIA H100"), "NVIDIA H100");
  // Similar GPUs that compute, move or hold less are unknown.
  for (const char* other :
       {"NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM-64GB",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA H200 NVL", "NVIDIA GB200 NVL4", "NVIDIA B200A", "NVIDIA GeForce RTX 4090", "NVIDIA",
        ""})
    EXPECT_EQ(found(other), "") << other;
  EXPECT_EQ(gpu_peak_flops("NVIDIA H100 NVL", DType::bf16), 0);
  EXPECT_EQ(gpu_peak_flops("NVIDIA H200", DType::bf16), 989.4e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA H200", DType::fp8_e4m3), 1978.9e12);
  EXPECT_EQ(gpu_peak_flops("NVIDIA A100-SXM4-80GB", DType::fp32), 19.5e12);
  EXPECT_EQ(gpu_peak_flops("another", DType::bf16), 0);
}

}  // namespace lockstep::testing::prices_test
