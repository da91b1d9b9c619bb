// TimedProduct: a matmul that preflight times, and the matmul shapes of a configuration.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/arena.h"
#include "core/stream.h"
#include "core/system/hardware.h"
#include "dist/topology/topology.h"
#include "train/config.h"

namespace lockstep {

struct ProductShape {  // [M, K] times [K, N]
  std::int64_t M = 0, N = 0, K = 0;
  DType dtype = DType::fp32;

  double flops() const;
  friend bool operator==(const ProductShape&, const ProductShape&) = default;
  friend bool operator<(const ProductShape& a, const ProductShape& b) {
    return std::tie(a.M, a.N, a.K, a.dtype) < std::tie(b.M, b.N, b.K, b.dtype);
  }
};
std::string in_words(const ProductShape& shape);  // "4096 x 4096 x 1024 bf16"
double price_seconds(const ProductShape& shape, const Hardware& hardware);

// The shapes with the most FLOPs in a step of the configuration, at most 4. On CPUs, and without a
// configuration, a large matmul in fp32 and bf16 comes first, to compare hosts.
std::vector<ProductShape> product_shapes(const Config* config, const Stream& compute,
                                         const Topology& topology, int rank);

// TimedProduct owns the tensors of a matmul, filled with random numbers that are equal on all
// ranks.
class TimedProduct {
 public:
  TimedProduct(Stream& stream, const ProductShape& shape);
  void make();  // enqueues the matmul
  ConstTensor result() const { return y_; }

 private:
  explicit TimedProduct(Stream& measuring);
  static std::int64_t bytes(const Stream& stream, const ProductShape& shape);
  void allocate(const ProductShape& shape);

  Stream& stream_;
  Arena arena_;
  Tensor x_, weight_, y_;
};

}  // namespace lockstep
