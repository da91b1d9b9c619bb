// published_bench [CSV]: compares predicted with published throughputs of other engines
// (docs/planning.md). Run in the root of the repository, or name throughput.csv.
//
//   tokens/s, a GPU: predicted and published, and their ratio
//   layout: stated by the source, or searched for what it leaves open
//   a row that states too little for a price: the reason
//   then mean absolute errors, and Megatron's steps of 2022 on A100, to which nothing was fitted
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <sstream>

#include "tests/bench/published_rows.h"

namespace lockstep {
namespace {

struct Result {
  PublishedRow row;
  double ratio;  // predicted over published
};

const char* name(PublishedRecompute recompute) {
  constexpr std::array kNames{"none", "attention", "half", "save_qkv", "full"};
  return kNames[static_cast<std::size_t>(recompute)];
}

const char* name(PublishedPrecision precision) {
  constexpr std::array kNames{"bf16", "fp8", "fp8-current", "fp8-rowwise"};
  return kNames[static_cast<std::size_t>(precision)];
}

void print_parts(const RunPrice& price) {
  for (std::size_t part = 0; part < kRunParts; ++part)
    if (const double share = price.seconds[part] / price.step_seconds; std::abs(share) > 0.005)
      std::printf(" %s %.0f", name(static_cast<RunPart>(part)), 100 * share);
  std::printf("\n");
}

Result print(const PublishedRow& row) {
  const PublishedLayout l = resolved_layout(row);
  const auto price = price_run(row.model, l, row.hardware(), published_engine(row.engine));
  const double ratio = price.tokens_per_second / row.tokens_per_second;
  if (!std::isfinite(ratio) || ratio <= 0)
    throw Error(str("the price is ", price.tokens_per_second,
                    " tokens/s; expected more than 0. Correct the sizes in the row"));
  std::printf("%3d %-10s %-18.18s %-21s %4d %2d %2d %2d %2d %3d %3d %7d %-11s %-9s %-8s",
              row.number, row.engine.c_str(), row.model_name.c_str(), row.gpu.c_str(), l.gpus,
              l.tensor, l.pipeline, l.context, l.chunks, l.micro_batch, l.micro_batches(),
              static_cast<int>(row.model.sequence), name(l.precision), name(l.recompute),
              row.is_stated ? "stated" : "searched");
  std::printf(" %10.1f %10.1f %6.3f ", price.tokens_per_second, row.tokens_per_second, ratio);
  print_parts(price);
  return {row, ratio};
}

void print_error(const char* what, const std::vector<Result>& results,
                 const std::function<bool(const PublishedRow&)>& is_of) {
  double sum = 0;
  int count = 0;
  for (const auto& [row, ratio] : results) {
    if (!is_of(row)) continue;
    sum += std::abs(ratio - 1);
    ++count;
  }
  if (count > 0) std::printf("  %-18s %5.1f %%  (%d rows)\n", what, 100 * sum / count, count);
}

void print_korthikanti() {
  std::printf("Megatron on A100 (arXiv 2205.05198), seconds a step: predicted, published\n");
  for (auto one : korthikanti_cases())
    for (const auto recompute : {PublishedRecompute::full, PublishedRecompute::attention}) {
      one.layout.recompute = recompute;
      const double published =
          recompute == PublishedRecompute::full ? one.full_seconds : one.selective_seconds;
      const auto price = price_run(one.model, one.layout, *find_hardware("NVIDIA A100"),
                                   published_engine("megatron22"));
      std::printf("  %-10s %-9s %7.2f %7.2f %+5.1f %% ", one.name, name(recompute),
                  price.step_seconds, published, 100 * (price.step_seconds / published - 1));
      print_parts(price);
    }
}

PublishedConstants constants_of(const std::string& line) {
  PublishedConstants constants;
  std::istringstream words(line);
  std::string name;
  for (double value = 0; words >> name >> value;) {
    const auto all = published_constants();
    const auto found = std::ranges::find(all, name, &PublishedConstant::name);
    if (found == all.end()) throw Error(str("'", name, "' is not a known constant"));
    constants.*(found->value) = value;
  }
  return constants;
}

RunPrice price(const PublishedRow& row, const PublishedConstants& constants) {
  return price_run(row.model, resolved_layout(row, constants), row.hardware(),
                   published_engine(row.engine), constants);
}

void run(const char* csv) {
  std::printf(
      "row engine     model              GPU                   GPUs  t  p  c  v  mb   m     seq "
      "precision   recompute layout    predicted  published  ratio  %% of the step\n");
  std::vector<Result> results;
  int rows_without_price = 0;
  for (const auto& row : read_published_rows(csv)) {
    try {
      results.push_back(print(row));
    } catch (const Error& error) {
      std::printf("%3d %-18.18s has no price: %s\n", row.number, row.says.at("model").c_str(),
                  error.what());
      ++rows_without_price;
    }
  }
  std::printf("%zu rows have a price, %d have none\n", results.size(), rows_without_price);
  std::printf("mean absolute error of tokens/s, a GPU:\n");
  print_error("layout stated", results, [](const auto& row) { return row.is_stated; });
  print_error("layout searched", results, [](const auto& row) { return !row.is_stated; });
  for (const auto& engine : published_engines())
    print_error(str(engine.name).c_str(), results,
                [&](const auto& row) { return row.engine == engine.name; });
  print_korthikanti();
}

// For fit.py. First prints a line with the engine, the number of GPUs, the published tokens/s and
// whether the layout is stated, for each row. Then, for each line of stdin with names and values of
// constants, prints a line with the predicted tokens/s of each row; 0: it cannot be estimated.
void serve(const char* csv) {
  const auto rows = read_published_rows(csv);
  for (const auto& row : rows)
    std::printf("%s %d %.12g %d ", row.problem.empty() ? row.engine.c_str() : "-", row.layout.gpus,
                row.tokens_per_second, row.is_stated ? 1 : 0);
  std::printf("\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const PublishedConstants constants = constants_of(line);
    for (const auto& row : rows) {
      double rate = 0;
      try {
        rate = price(row, constants).tokens_per_second;
      } catch (const Error&) {  // run() prints the reason
      }
      std::printf("%.12g ", rate);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    const bool is_server = argc > 1 && std::string_view(argv[1]) == "--serve";
    const int at = is_server ? 2 : 1;
    const char* csv = argc > at ? argv[at] : "tests/bench/published/throughput.csv";
    is_server ? lockstep::serve(csv) : lockstep::run(csv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
