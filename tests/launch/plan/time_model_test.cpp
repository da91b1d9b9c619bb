#include "launch/plan/time_model.h"

#include <gtest/gtest.h>

#include "core/file.h"
#include "core/json.h"
#include "core/philox.h"
#include "launch/plan/step_time.h"
#include "tests/bench/published_rows.h"
#include "tests/train/layout_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::prices_test {

// Two programs in float64 add the same numbers in another order.
constexpr double kRelative = 1e-9;

// tests/oracle/make_prices_fixture.py wrote it from the fitted model.
const Json& fixture() {
  static const Json json = Json::parse(
      read_text(std::filesystem::path(LOCKSTEP_FIXTURES) / "prices.json", 1 << 20), "prices.json");
  return json;
}

const Hardware& hardware_of(const Json& name) {
  const std::map<std::string, const char*> names{
      {"A100", "NVIDIA A100"},           {"A100-40G", "NVIDIA A100-SXM4-40GB"},
      {"H100", "NVIDIA H100"},           {"H100-500W", "NVIDIA H100 at 500 W"},
      {"H100-PCIe", "NVIDIA H100 PCIe"}, {"H200", "NVIDIA H200"},
      {"B200", "NVIDIA B200"},           {"GB200", "NVIDIA GB200"}};
  return *find_hardware(names.at(name.as_string()));
}

TimeModel prices_of(const Json::Array& one) {
  return TimeModel(hardware_of(one[0]), published_engine(one[1].as_string()).numbers);
}

Arithmetic arithmetic_of_name(const std::string& text) {
  if (text == "fp8_rowwise") return Arithmetic::fp8_rowwise;
  return text == "fp8" ? Arithmetic::fp8 : Arithmetic::bf16;
}

void expect_same(double found, double expected, const std::string& what, double scale = 0) {
  EXPECT_NEAR(found, expected, kRelative * std::max(std::abs(expected), scale)) << what;
}

const std::vector<PublishedRow>& rows() {
  static const auto all = read_published_rows(std::filesystem::path(LOCKSTEP_FIXTURES) /
                                              "../../bench/published/throughput.csv");
  return all;
}

Op op_of(Op::Kind kind, const char* op_name, std::int64_t bytes) {
  Op op;
  op.name = op_name;
  op.kind = kind;
  op.bytes = bytes;
  op.dtype = DType::bf16;
  return op;
}

// ---------------------------------------------------------------------------- as the fitted model

TEST(TimeModel, of_matmuls_equal_the_fitted_model) {
  for (const Json& json : fixture().at("products").as_array()) {
    const auto& one = json.as_array();
    const auto call = matmul_call(one[3].as_double(), one[4].as_double(), one[5].as_double(),
                                  arithmetic_of_name(one[2].as_string()));
    expect_same(prices_of(one).matmul_seconds(call), one[6].as_double(), json.dump());
  }
}

TEST(TimeModel, of_attention_equal_the_fitted_model) {
  for (const Json& json : fixture().at("attentions").as_array()) {
    const auto& one = json.as_array();
    const TimeModel time_model = prices_of(one);
    AttentionCall call{.flops = one[2].as_double(),
                       .sequence = one[3].as_double(),
                       .head_size = one[4].as_double()};
    expect_same(time_model.attention_seconds(call), one[5].as_double(), json.dump());
    call.flops *= 2.5;
    call.is_backward = true;
    expect_same(time_model.attention_seconds(call), one[6].as_double(), json.dump());
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
  const auto fitted = published_engine("torchtitan").numbers.attention;
  EXPECT_DOUBLE_EQ(ratio("NVIDIA H100", DType::bf16, "forward"), 1 / fitted[1]);
  EXPECT_DOUBLE_EQ(ratio("NVIDIA H100", DType::bf16, "backward"), 7.0 / 5 / fitted[1]);
  EXPECT_DOUBLE_EQ(ratio("NVIDIA A100", DType::bf16, "forward"), 1);
  EXPECT_DOUBLE_EQ(ratio("NVIDIA H100", DType::fp32, "backward"), 1) << "cuDNN has none";
}

TEST(TimeModel, of_collectives_equal_the_fitted_model) {
  for (const Json& json : fixture().at("collectives").as_array()) {
    const auto& one = json.as_array();
    const TimeModel time_model = prices_of(one);
    const double bytes = one[2].as_double();
    const auto ranks = static_cast<int>(one[3].as_integer());
    const auto inside = static_cast<int>(one[4].as_integer());
    expect_same(time_model.gather_seconds(bytes, ranks, inside, one[5].as_double()),
                one[7].as_double(), json.dump());
    expect_same(time_model.all_reduce_seconds(bytes, ranks, inside, one[6].as_double()),
                one[8].as_double(), json.dump());
  }
}

// The first row of throughput.csv with some columns changed.
PublishedRow row_with(const std::map<std::string, std::string>& changes) {
  auto cells = rows().front().says;
  for (const auto& [column, text] : changes)
    cells.at(column) = text;
  std::string header, line;
  for (const auto& [column, text] : cells) {
    header += (header.empty() ? "" : ",") + column;
    line += (line.empty() ? "\"" : ",\"") + text + "\"";
  }
  const TemporaryDirectory directory;
  write_text(directory / "rows.csv", header + "\n" + line + "\n");
  return read_published_rows(directory / "rows.csv").at(0);
}

TEST(PublishedRun, an_incomplete_or_invalid_row_has_a_reason_instead_of_a_price) {
  EXPECT_EQ(row_with({}).problem, "");
  struct Case {
    std::map<std::string, std::string> changes;
    std::string column;
  };
  for (const auto& [changes, column] : std::vector<Case>{
           {{{"layers", ""}}, "column layers is ''"},
           {{{"hidden", ""}}, "column hidden is ''"},
           {{{"heads", "0"}}, "column heads is '0'"},
           {{{"hidden", "1"}}, "column hidden is '1'"},
           {{{"kv_heads", "eight"}}, "column kv_heads is 'eight'"},
           {{{"vocab", "1e300"}}, "column vocab is '1e300'"},
           {{{"seq", "0"}}, "column seq is '0'"},
           {{{"n_gpus", "0"}}, "column n_gpus is '0'"},
           {{{"micro_batch", "0.5"}}, "column micro_batch is '0.5'"},
           {{{"tflops_per_gpu", ""}, {"mfu_pct", ""}}, "tokens_per_s_per_gpu, tflops_per_gpu"},
           {{{"gpu", "TPU v5p"}}, "column gpu is 'TPU v5p'"},
           {{{"recompute", "some"}}, "column recompute is 'some'"}}) {
    const auto row = row_with(changes);
    expect_contains(row.problem, column);
    expect_wording("launch/published_rows", column, row.problem);
    EXPECT_THROW(resolved_layout(row), Error) << column;
  }
}

TEST(PublishedRun, a_missing_column_is_rejected_by_name) {
  const TemporaryDirectory directory;
  write_text(directory / "rows.csv", "source,model,gpu\nllm.c,GPT-2,H100\n");
  expect_refusal<Error>("launch/published_rows", "no column", {"rows.csv", "layers"},
                        [&] { read_published_rows(directory / "rows.csv"); });
}

TEST(PublishedRun, resolves_and_prices_each_row_as_the_fitted_model_does) {
  const auto& expected = fixture().at("runs").as_array();
  ASSERT_EQ(rows().size(), expected.size());
  const std::map<std::string, PublishedRecompute> recomputes{
      {"none", PublishedRecompute::none},
      {"attention", PublishedRecompute::attention},
      {"half", PublishedRecompute::half},
      {"save_qkv", PublishedRecompute::save_qkv},
      {"full", PublishedRecompute::full}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const PublishedRow& row = rows()[i];
    const Json& run = expected[i];
    const std::string what = str("row ", row.number, ", ", row.model_name);
    EXPECT_EQ(row.engine, run.at("engine").as_string()) << what;
    EXPECT_EQ(row.hardware().name, hardware_of(run.at("gpu")).name) << what;
    EXPECT_EQ(row.is_stated, run.at("is_stated").as_bool()) << what;
    expect_same(row.tokens_per_second, run.at("published").as_double(), what);
    const PublishedLayout l = resolved_layout(row);
    const std::array sizes{l.gpus,   l.data,        l.tensor,       l.pipeline,   l.context,
                           l.chunks, l.micro_batch, l.global_batch, l.shard_group};
    for (std::size_t k = 0; k < sizes.size(); ++k)
      EXPECT_EQ(sizes[k], run.at("layout").as_array()[k].as_integer()) << what << ", size " << k;
    EXPECT_EQ(l.recompute, recomputes.at(run.at("recompute").as_string())) << what;
    const auto price = price_run(row.model, l, row.hardware(), published_engine(row.engine));
    expect_same(price.tokens_per_second, run.at("tokens_per_second").as_double(), what);
    expect_same(price.step_seconds, run.at("step_seconds").as_double(), what);
    for (std::size_t part = 0; part < kRunParts; ++part) {
      const char* part_name = name(static_cast<RunPart>(part));
      const Json* seconds = run.at("parts").find(part_name);
      expect_same(price.seconds[part], seconds == nullptr ? 0 : seconds->as_double(),
                  str(what, ", ", part_name), price.step_seconds);
    }
  }
}

// -------------------------------------------------------------------------- published measurements

// These are the targets of the model; docs/planning.md has its errors.
TEST(PublishedRun, has_a_mean_error_up_to_10_percent_with_a_stated_layout_and_15_without) {
  std::array<double, 2> sums{};
  std::array<int, 2> counts{};
  for (const auto& row : rows()) {
    const auto price =
        price_run(row.model, resolved_layout(row), row.hardware(), published_engine(row.engine));
    const std::size_t which = row.is_stated ? 0 : 1;
    sums[which] += std::abs(price.tokens_per_second / row.tokens_per_second - 1);
    ++counts[which];
  }
  EXPECT_LE(sums[0] / counts[0], 0.10);
  EXPECT_LE(sums[1] / counts[1], 0.15);
}

TEST(PublishedRun, is_within_10_percent_of_megatron_on_a100_to_which_nothing_was_fitted) {
  for (auto& one : korthikanti_cases()) {
    const auto seconds = [&](PublishedRecompute recompute) {
      one.layout.recompute = recompute;
      return price_run(one.model, one.layout, *find_hardware("NVIDIA A100"),
                       published_engine("selene"))
          .step_seconds;
    };
    EXPECT_NEAR(seconds(PublishedRecompute::full) / one.full_seconds, 1, 0.1) << one.name;
    EXPECT_NEAR(seconds(PublishedRecompute::attention) / one.selective_seconds, 1, 0.1) << one.name;
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

// The tolerance is for the slowdown: a faster ring slows compute more per second, also during its
// latency, which moves no bytes. A run with many small calls loses up to 1.6 %.
TEST(PublishedRun, is_not_slower_on_faster_hardware) {
  constexpr double kOfLatency = 0.02;
  for (const auto& row : rows()) {
    const auto layout = resolved_layout(row);
    const auto& engine = published_engine(row.engine);
    const double rate = price_run(row.model, layout, row.hardware(), engine).tokens_per_second;
    for (const Hardware& faster : better(row.hardware()))
      EXPECT_GE(price_run(row.model, layout, faster, engine).tokens_per_second,
                rate * (1 - kOfLatency))
          << "row " << row.number;
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
