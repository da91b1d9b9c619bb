// TimedMatmul: a matmul that preflight times, and the matmul shapes of a configuration.
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

struct MatmulShape {  // [M, K] times [K, N]
  std::int64_t M = 0, N = 0, K = 0;
  DType dtype = DType::fp32;

  double flops() const;
  friend bool operator==(const MatmulShape&, const MatmulShape&) = default;
  friend bool operator<(const MatmulShape& a, const MatmulShape& b) {
    return std::tie(a.M, a.N, a.K, a.dtype) < std::tie(b.M, b.N, b.K, b.dtype);
  }
};
std::string in_words(const MatmulShape& shape);  // "4096 x 4096 x 1024 bf16"
double predicted_seconds(const MatmulShape& shape, const Hardware& hardware);

// The shapes with the most FLOPs in a step of the configuration, at most 4. On CPUs, and without a
// configuration, a large matmul in fp32 and bf16 comes first, to compare hosts.
std::vector<MatmulShape> matmul_shapes(const Config* config, const Stream& compute,
                                       const Topology& topology, int rank);

// TimedMatmul owns the tensors of a matmul, filled with random numbers that are equal on all
// ranks.
class TimedMatmul {
 public:
  TimedMatmul(Stream& stream, const MatmulShape& shape);
  void make();  // enqueues the matmul
  ConstTensor result() const { return y_; }

 private:
  explicit TimedMatmul(Stream& measuring);
  static std::int64_t bytes(const Stream& stream, const MatmulShape& shape);
  void allocate(const MatmulShape& shape);

  Stream& stream_;
  Arena arena_;
  Tensor x_, weight_, y_;
};

}  // namespace lockstep
