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
}

// -------------------------------------------------------------------------- published measurements

// The goals of docs/planning.md, for rows to which the constants were fitted, and for others.
TEST(PublishedRun, predicts_fitted_and_other_rows_within_the_goals) {
  for (const char* file : {"throughput.csv", "unfitted.csv"}) {
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
    ASSERT_GT(errors.size(), 70U);
    EXPECT_LE(std::accumulate(errors.begin(), errors.end(), 0.0),
              0.10 * static_cast<double>(errors.size()))
        << file;
    EXPECT_LE(far, 3) << file;
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

// docs/planning.md: of 1,024 GPUs the slowest is 2.8 % slower than the mean.
TEST(PublishedRun, waits_for_the_slowest_gpu) {
  EXPECT_NEAR(expected_maximum(1024), 3.123, 1e-3);
  EXPECT_NEAR(expected_maximum(8), 1.24, 1e-2);
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
  const auto host = [](int gpus) { return run(gpus, {}, {}, "llmc_unfused")[RunPart::host]; };
  EXPECT_NEAR(host(384) - host(192), 192 * 4.3e-3, 1e-9);
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
