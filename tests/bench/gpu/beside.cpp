// A reduction's kernels beside the products of a layer's backward: parts beside and beside_tiny.
#include <array>
#include <cstdio>

#include "core/integer.h"
#include "kernels/matmul.h"
#include "kernels/matmul_algorithms.h"
#include "kernels/pieces.h"
#include "tests/bench/gpu/bench.h"

namespace lockstep::bench {
namespace {

struct Sizes {
  std::int64_t tokens, width, qkv, mlp;
  int layers;  // whose products run beside one reduction
  int rounds;
  std::int64_t device_bytes;
};
constexpr Sizes kLlama8b{8192, 4096, 6144, 14336, 8, 9, 8 * kGiB};
constexpr Sizes kTiny{8, 32, 48, 64, 1, 1, kGiB / 8};  // for the simulated GPU

// The products of a layer's backward.
class LayerProducts {
 public:
  LayerProducts(Bench& bench, const Sizes& sizes) : bench_(bench), layers_(sizes.layers) {
    const auto N = sizes.tokens, D = sizes.width, F = sizes.mlp;
    const auto bf16 = DType::bf16;
    for (const auto& [O, I] : std::array<std::pair<std::int64_t, std::int64_t>, 4>{
             {{sizes.qkv, D}, {D, D}, {2 * F, D}, {D, F}}}) {
      matrices_.push_back({.x = bench.tensor({N, I}, bf16),
                           .dy = bench.tensor({N, O}, bf16),
                           .weight = bench.tensor({O, I}, bf16),
                           .dx = bench.zeros({N, I}, bf16),
                           .dweight = bench.zeros({O, I}, DType::fp32)});
      parameters_ += O * I;
    }
    choose_matmul_algorithms(bench.stream(), {}, [&] { layer(); });
  }
  std::int64_t parameters() const { return parameters_; }
  void enqueue() {
    for (int i = 0; i < layers_; ++i)
      layer();
  }

 private:
  struct Matrix {
    Tensor x, dy, weight, dx, dweight;
  };
  void layer() {
    for (const Matrix& m : matrices_) {
      matmul_backward_input(bench_.stream(), bench_.arena(), m.dx, m.dy, m.weight);
      matmul_backward_weight(bench_.stream(), bench_.arena(), m.dweight, {}, m.dy, m.x);
    }
  }
  Bench& bench_;
  int layers_;
  std::vector<Matrix> matrices_;
  std::int64_t parameters_ = 0;
};

// The kernels of a unit's reduction over 8 domains of 8 ranks (dist/reduction.cpp), each dependent
// on the one before. A copy takes the place of the kernel that moves the sums across domains.
class Reduction {
 public:
  static constexpr std::int64_t kInside = 8, kDomains = 8, kMostChunks = 32;

  Reduction(Bench& bench, std::int64_t parameters)
      : columns_(round_up(divide_up(parameters, kInside * kDomains), kMostChunks)),
        gradients_(bench.tensor({kDomains, kInside, columns_}, DType::fp32)),
        pieces_(bench.zeros({kInside * kDomains * columns_}, DType::bf16)),
        sent_(bench.zeros({kDomains * columns_}, DType::fp32)),
        received_(bench.zeros({kDomains * columns_}, DType::fp32)),
        sum_(bench.zeros({columns_}, DType::fp32)) {}

  static constexpr std::int64_t kernels(std::int64_t chunks) { return 4 * chunks; }
  void enqueue(Stream& stream, std::int64_t chunks) {
    const auto m = columns_ / chunks;
    const auto pieces = pieces_.rows(0, kInside * kDomains * m);
    const auto sent = sent_.rows(0, kDomains * m), received = received_.rows(0, kDomains * m);
    for (std::int64_t c = 0; c < chunks; ++c) {
      pack_pieces(stream, pieces.view({kInside, kDomains, m}), gradients_, c * m);
      sum_pieces(stream, {.out = sent, .pieces = pieces.view({kInside, kDomains * m})});
      pack_pieces(stream, received.view({1, kDomains, m}), sent.view({kDomains, 1, m}), 0);
      sum_pieces(stream, {.out = sum_.rows(c * m, m), .pieces = received.view({kDomains, m})});
    }
  }

 private:
  std::int64_t columns_;
  Tensor gradients_, pieces_, sent_, received_, sum_;
};

struct Times {
  double products = 0, reduction = 0;
};

// Medians; either may be left out. Both start when the stream of the products gets there.
Times time(Bench& bench, const Sizes& sizes, LayerProducts* products, Stream* other,
           const std::function<void()>& reduce) {
  std::vector<double> of_products, of_reduction;
  Stream& compute = bench.stream();
  for (int round = 0; round < sizes.rounds; ++round) {
    const Event begin = compute.record_timed();
    if (products != nullptr) products->enqueue();
    const Event end = compute.record_timed();
    if (other != nullptr) {
      other->wait(begin);
      const Event first = other->record_timed();
      reduce();
      const Event last = other->record_timed();
      last.synchronize();
      of_reduction.push_back(last.seconds_since(first));
    }
    end.synchronize();
    of_products.push_back(end.seconds_since(begin));
  }
  const auto median = [](std::vector<double>& all) {
    std::sort(all.begin(), all.end());
    return all.empty() ? 0 : all[all.size() / 2];
  };
  return {median(of_products), median(of_reduction)};
}

}  // namespace

void beside(bool is_tiny) {
  const Sizes& sizes = is_tiny ? kTiny : kLlama8b;
  Bench bench(sizes.device_bytes);
  LayerProducts products(bench, sizes);
  Reduction reduction(bench, products.parameters());
  bench.stream().synchronize();
  const double alone = time(bench, sizes, &products, nullptr, {}).products;
  std::printf("\nproducts of the backward of %d layers: %.2f ms alone\n", sizes.layers,
              1e3 * alone);
  std::printf("%7s %8s %-9s %15s %10s %7s %17s %9s\n", "chunks", "kernels", "priority",
              "reduction, ms", "beside, ms", "times", "products take, ms", "more, ms");
  for (const std::int64_t chunks : {std::int64_t{4}, Reduction::kMostChunks})
    for (const auto priority : {Stream::Priority::normal, Stream::Priority::urgent}) {
      Stream other(kGpu, "reduction", Stream::Mode::immediate, 1, priority);
      const auto reduce = [&] { reduction.enqueue(other, chunks); };
      const double by_itself = time(bench, sizes, nullptr, &other, reduce).reduction;
      const auto both = time(bench, sizes, &products, &other, reduce);
      std::printf("%7lld %8lld %-9s %15.2f %10.2f %7.2f %17.2f %9.2f\n",
                  static_cast<long long>(chunks),
                  static_cast<long long>(Reduction::kernels(chunks)),
                  priority == Stream::Priority::urgent ? "urgent" : "normal", 1e3 * by_itself,
                  1e3 * both.reduction, both.reduction / by_itself, 1e3 * both.products,
                  1e3 * (both.products - alone));
      std::fflush(stdout);
    }
}

}  // namespace lockstep::bench
