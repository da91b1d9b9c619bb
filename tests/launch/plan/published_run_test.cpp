#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "core/file.h"
#include "tests/bench/published_rows.h"
#include "tests/wording.h"

namespace lockstep::testing::published_run_test {

std::vector<PublishedRow> rows(const char* file) {
  return read_published_rows(std::filesystem::path(LOCKSTEP_FIXTURES) / "../../bench/published" /
                             file);
}

// Copies of `hardware`, each with one of its rates doubled.
std::vector<Hardware> better(const Hardware& hardware) {
  std::vector<Hardware> all;
  for (const auto rate :
       {&Hardware::bf16_flops, &Hardware::fp8_flops, &Hardware::hbm_bytes_per_second,
        &Hardware::nvlink_bytes_per_second, &Hardware::nic_bytes_per_second}) {
    all.push_back(hardware);
    all.back().*rate *= 2;
  }
  return all;
}

// The first row of throughput.csv with some columns changed.
PublishedRow row_with(const std::map<std::string, std::string>& changes) {
  auto cells = rows("throughput.csv").front().says;
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
           {{{"layers", "32.7"}}, "column layers is '32.7'"},
           {{{"tp", "two"}}, "column tp is 'two'"},
           {{{"n_gpus", "64"}, {"tp", "16"}, {"pp", "8"}}, "columns tp x pp x cp are 16 x 8 x 1"},
           {{{"n_gpus", "64"}, {"tp", "65536"}, {"pp", "65536"}},
            "columns tp x pp x cp are 65536 x 65536"},
           {{{"tflops_per_gpu", ""}, {"mfu_pct", ""}}, "tokens_per_s_per_gpu, tflops_per_gpu"},
           {{{"gpu", "TPU v5p"}}, "column gpu is 'TPU v5p'"},
           {{{"recompute", "some"}}, "column recompute is 'some'"},
           {{{"notes", "MoE EP=8"}}, "is a mixture of experts"}}) {
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
  write_text(directory / "rows.csv", "");
  expect_refusal<Error>("launch/published_rows", "empty", {"rows.csv", "is empty"},
                        [&] { read_published_rows(directory / "rows.csv"); });
}

TEST(PublishedRun, a_byte_order_mark_and_empty_lines_are_skipped) {
  const TemporaryDirectory directory;
  const auto text = read_text(
      std::filesystem::path(LOCKSTEP_FIXTURES) / "../../bench/published/unfitted.csv", 1 << 20);
  write_text(directory / "rows.csv", "\xEF\xBB\xBF" + text + "\r\n\n");
  const auto found = read_published_rows(directory / "rows.csv");
  EXPECT_EQ(found.size(), rows("unfitted.csv").size());
  EXPECT_EQ(found.back().problem, "");
}

// -------------------------------------------------------------------------- published measurements

// The goals of docs/planning.md: of fitted rows also the median, of others the mean.
TEST(PublishedRun, predicts_fitted_and_other_rows_within_the_goals) {
  struct File {
    const char* name;
    std::size_t estimated;
    double median;
  };
  for (const auto& [file, estimated, median] :
       {File{"throughput.csv", 160, 0.05}, File{"unfitted.csv", 74, 0.10}}) {
    std::vector<double> errors;
    int far = 0;
    for (const auto& row : rows(file)) {
      if (!row.problem.empty()) continue;
      const auto price =
          price_run(row.model, resolved_layout(row), row.hardware(), published_engine(row.engine));
      const double ratio = price.tokens_per_second / row.tokens_per_second;
      errors.push_back(std::abs(ratio - 1));
      far += std::max(ratio, 1 / ratio) > 1.5 ? 1 : 0;
    }
    ASSERT_EQ(errors.size(), estimated) << file;
    std::ranges::sort(errors);
    EXPECT_LE(std::accumulate(errors.begin(), errors.end(), 0.0),
              0.10 * static_cast<double>(errors.size()))
        << file;
    EXPECT_LE(errors[estimated / 2], median) << file;
    EXPECT_LE(far, 3) << file;
  }
}

// The fit of published runs is copied into the plan's constants.
TEST(PublishedRun, has_the_constants_of_plans) {
  const PublishedConstants fitted;
  const EngineEfficiency plan;
  EXPECT_EQ(plan.fp8_gain, fitted.fp8_gain);
  EXPECT_EQ(plan.rowwise_gain, fitted.rowwise_gain);
  EXPECT_EQ(plan.tile_steps, fitted.tile_steps);
  EXPECT_EQ(plan.head_exponent, fitted.head_exponent);
  EXPECT_EQ(kSpeedSpread, fitted.spread);
  EXPECT_NEAR(plan.network, fitted.network_rdma, 0.01);
  EXPECT_EQ(plan.own_attention[1], fitted.flash2_hopper);
  for (const char* gpu : {"NVIDIA A100", "NVIDIA H100", "NVIDIA H100 at 500 W", "NVIDIA H200"}) {
    const Hardware& known = *find_hardware(gpu);
    const Hardware with = hardware_with(known, fitted);
    EXPECT_NEAR(with.sustained, known.sustained, 1e-3) << gpu;
    EXPECT_NEAR(with.power, known.power, 1e-3) << gpu;
    EXPECT_EQ(with.slowdown, known.slowdown) << gpu;
  }
}

TEST(PublishedRun, is_within_10_percent_of_megatron_on_a100_to_which_nothing_was_fitted) {
  for (auto& one : korthikanti_cases()) {
    const auto seconds = [&](PublishedRecompute recompute) {
      one.layout.recompute = recompute;
      return price_run(one.model, one.layout, *find_hardware("NVIDIA A100"),
                       published_engine("megatron22"))
          .step_seconds;
    };
    EXPECT_NEAR(seconds(PublishedRecompute::full) / one.full_seconds, 1, 0.1) << one.name;
    EXPECT_NEAR(seconds(PublishedRecompute::attention) / one.selective_seconds, 1, 0.1) << one.name;
  }
}

// ----------------------------------------------------------------------------------------- terms

// A GPT of one layer on `gpus` data-parallel GPUs, by nanotron: PyTorch operators one by one.
RunPrice run(int gpus, const PublishedConstants& constants,
             const std::function<void(PublishedModel&, PublishedLayout&)>& change = {},
             const char* engine = "nanotron") {
  PublishedModel model{.layers = 1,
                       .width = 1024,
                       .mlp = 4096,
                       .heads = 8,
                       .kv_heads = 8,
                       .head_size = 128,
                       .vocabulary = 32000,
                       .sequence = 2048};
  PublishedLayout layout{.gpus = gpus, .data = gpus, .sharding = PublishedSharding::none};
  layout.global_batch = gpus;
  if (change) change(model, layout);
  return price_run(model, layout, *find_hardware("NVIDIA H100"), published_engine(engine),
                   constants);
}

// The exact expected maxima are integrals, computed to three digits.
TEST(PublishedRun, waits_for_the_slowest_gpu) {
  for (const auto& [gpus, exact] :
       {std::pair{8, 1.424}, {64, 2.344}, {1024, 3.248}, {16384, 3.960}})
    EXPECT_NEAR(expected_maximum(gpus) / exact, 1, gpus < 64 ? 0.07 : 0.025) << gpus;
  EXPECT_NEAR(expected_maximum(1024), 3.278, 1e-3);  // docs/planning.md
  EXPECT_EQ(expected_maximum(1), 0);
  PublishedConstants equal;
  equal.spread = 0;
  const double spread = run(1024, {})[RunPart::spread];
  EXPECT_NEAR(run(1024, {}).step_seconds - run(1024, equal).step_seconds, spread, 1e-12);
  // compute of the micro-batch, as one GPU has it without the host and the optimizer
  const auto one = run(1, equal);
  const double compute = one.step_seconds - one[RunPart::host] - one[RunPart::optimizer];
  EXPECT_NEAR(spread, 0.009 * expected_maximum(1024) * compute, 1e-9);
}

// 60 kernels of 8 us and ten collectives of 50 us: 0.98 ms a layer, more than the GPU computes.
TEST(PublishedRun, cannot_be_faster_than_its_host) {
  const auto small = [](PublishedModel& model, PublishedLayout& layout) {
    model.layers = 16;
    model.sequence = 64;
    layout.tensor = 8;
    layout.data = layout.global_batch = 1;
  };
  PublishedConstants free;
  free.launch_eager = free.call = 0;
  const auto with = run(8, {}, small), without = run(8, free, small);
  const double busy = without.step_seconds - without[RunPart::host] - without[RunPart::spread] -
                      without[RunPart::optimizer];
  const double optimizer = 18 * 16 * 8e-6;
  EXPECT_NEAR(with.step_seconds - without.step_seconds, 16 * 0.98e-3 - busy + optimizer, 1e-9);
}

// The tiles of a product that arrives in eight pieces of 1,024 rows fill 2 x 132 of its waves less.
TEST(PublishedRun, products_in_pieces_leave_more_multiprocessors_idle) {
  const auto tensor = [](bool in_pieces) {
    return run(
        8, {},
        [&](PublishedModel& model, PublishedLayout& layout) {
          model.width = 8192;
          model.mlp = 28672;
          model.heads = model.kv_heads = 64;
          model.sequence = 8192;
          layout.tensor = 8;
          layout.data = layout.global_batch = 1;
          layout.has_async_tensor = in_pieces;
        },
        "torchtitan");
  };
  const auto whole = tensor(false), pieces = tensor(true);
  EXPECT_GT(pieces[RunPart::products], 1.02 * whole[RunPart::products]);
  EXPECT_LT(pieces[RunPart::products], 1.2 * whole[RunPart::products]);
  EXPECT_LT(pieces[RunPart::tensor], 0.7 * whole[RunPart::tensor]);
}

// A gradient of 4 bytes makes backward's collectives three times forward's, and its compute twice.
// So some are exposed although all together take less time than compute.
TEST(PublishedRun, collectives_of_backward_do_not_hide_in_forward) {
  const PublishedModel model{.layers = 32,
                             .width = 4096,
                             .mlp = 11008,
                             .heads = 32,
                             .kv_heads = 32,
                             .head_size = 128,
                             .vocabulary = 32000,
                             .sequence = 4096};
  PublishedLayout layout{.gpus = 128, .data = 128, .sharding = PublishedSharding::full};
  layout.global_batch = 128;
  PublishedConstants constants;
  constants.slowdown_ampere = constants.spread = 0;
  const double unit = model.layer_parameters() + 2.0 * 32000 * 4096 / 32;
  Hardware hardware = *find_hardware("NVIDIA A100");
  const auto& engine = published_engine("foundry");
  for (double nic = 20e9;; nic *= 0.98) {  // until collectives take 0.95 of compute
    hardware.nic_bytes_per_second = nic;
    const auto price = price_run(model, layout, hardware, engine, constants);
    const TimeModel time_model(hardware, efficiency(engine, constants));
    const double one = time_model.gather_seconds(2 * unit, 128, 8), all = 32 * (1 + 1 + 2) * one;
    const double compute = price.step_seconds - price[RunPart::data] - price[RunPart::host] -
                           price[RunPart::optimizer];
    if (all < 0.95 * compute) continue;
    const double never_hidden = 3 * one;  // the first gather and the last reduction
    EXPECT_GT(price[RunPart::data] - never_hidden, 0.01 * compute);
    break;
  }
}

// Each rank reads its batch from one file after the ranks before it.
TEST(PublishedRun, a_shared_file_is_read_by_one_rank_after_the_other) {
  const auto host = [](int gpus) {
    const auto shares = [](PublishedModel&, PublishedLayout& layout) {
      layout.reads_shared_file = true;
    };
    return run(gpus, {}, shares, "llmc_unfused")[RunPart::host];
  };
  EXPECT_NEAR(host(384) - host(192), 192 * 4.3e-3, 1e-9);
}

constexpr double kHbm = 0.85 * 3.35e12;  // of an H100

TEST(PublishedRun, terms_of_a_step_equal_those_computed_by_hand) {
  PublishedConstants without;
  without.step_python = 0;
  const auto step = run(8, {}), quick = run(8, without);
  EXPECT_NEAR(step[RunPart::host] - quick[RunPart::host], PublishedConstants().step_python, 1e-12);

  // 30 bytes of state, 4 of the norm and 18 of other passes for each parameter
  const double parameters = 1024 * 3072 + 1024 * 1024 + 3 * 1024 * 4096 + 2.0 * 32000 * 1024;
  EXPECT_NEAR(step[RunPart::optimizer], 52 * parameters / kHbm, 1e-9);

  // a pipeline of two stages, four micro-batches: nine messages each
  const auto pipeline = [](PublishedModel& model, PublishedLayout& layout) {
    model.layers = 2;
    layout.pipeline = 2;
    layout.data = 1;
    layout.global_batch = 4;
  };
  without.message = 0;
  EXPECT_NEAR(run(2, {}, pipeline)[RunPart::send] - run(2, without, pipeline)[RunPart::send],
              4 * 9 * 100e-6, 1e-12);

  // casts of 4 (M K + M N) bytes
  const auto fp8 = [](PublishedModel&, PublishedLayout& layout) {
    layout.precision = PublishedPrecision::fp8;
  };
  const double elements = 2048.0 * (1024 + 3072 + 1024 + 1024 + 1024 + 8192 + 4096 + 1024);
  EXPECT_NEAR(run(1, {}, fp8)[RunPart::memory] - run(1, {})[RunPart::memory],
              4 * elements * PublishedConstants().cast_delayed / kHbm, 1e-9);
}

TEST(PublishedRun, networks_and_power_caps_equal_those_computed_by_hand) {
  const PublishedConstants constants;
  const auto efa = efficiency(published_engine("nanotron"), constants);
  EXPECT_EQ(efa.node_hop_seconds, 60e-6);
  EXPECT_EQ(efa.node_level_seconds, 60e-6);
  EXPECT_EQ(efa.network, constants.network_efa);
  // docs/planning.md: a ring over 64 hosts with eight GPUs each
  const Hardware& h100 = *find_hardware("NVIDIA H100");
  EXPECT_NEAR(TimeModel(h100, efa).ring(512, 8).latency_seconds, 5.31e-3, 1e-5);
  EXPECT_NEAR(TimeModel(h100).ring(512, 8).latency_seconds, 2.41e-3, 1e-5);
  const auto capped = hardware_with(*find_hardware("NVIDIA H100 at 500 W"), constants);
  EXPECT_NEAR(capped.power, std::pow(500.0 / 700, constants.power_exponent), 1e-12);
  EXPECT_NEAR(capped.sustained, constants.sustained_hopper * capped.power, 1e-12);
}

// Each of 64 ranks broadcasts its part, instead of each of eight.
TEST(PublishedRun, broadcasts_have_the_latency_of_each_rank) {
  const auto data = [](int group) {
    const auto shard = [=](PublishedModel&, PublishedLayout& layout) {
      layout.sharding = PublishedSharding::optimizer;
      layout.shard_group = group;
    };
    return run(64, {}, shard, "internevo")[RunPart::data];
  };
  const TimeModel time_model(*find_hardware("NVIDIA H100"),
                             efficiency(published_engine("internevo"), {}));
  const double bytes = 2 * (1024 * 3072 + 1024 * 1024 + 3 * 1024 * 4096 + 2.0 * 32000 * 1024);
  const double expected =
      time_model.gather_seconds(bytes, 64, 8, 64) - time_model.gather_seconds(bytes, 8, 8, 8);
  EXPECT_GT(expected, 1e-3);
  // the slowdown beside compute depends on the ring of the group, too
  EXPECT_NEAR(data(64) - data(8), expected, 0.05 * expected);
}

// The tolerance is for the slowdown: a faster ring slows compute more per second, also during its
// latency, which moves no bytes. A run with many small calls loses up to 1.6 %.
TEST(PublishedRun, is_not_slower_on_faster_hardware) {
  constexpr double kOfLatency = 0.02;
  for (const auto& row : rows("throughput.csv")) {
    if (!row.problem.empty()) continue;
    const auto layout = resolved_layout(row);
    const auto& engine = published_engine(row.engine);
    const double rate = price_run(row.model, layout, row.hardware(), engine).tokens_per_second;
    for (const Hardware& faster : better(row.hardware()))
      EXPECT_GE(price_run(row.model, layout, faster, engine).tokens_per_second,
                rate * (1 - kOfLatency))
          << "row " << row.number;
  }
}

}  // namespace lockstep::testing::published_run_test
