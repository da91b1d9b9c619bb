#include "launch/preflight/timed_matmul.h"

#include <algorithm>
#include <map>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "launch/plan/step_program.h"
#include "launch/plan/time_model.h"
#include "train/run/run_config.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSide = 1024, kGpuSide = 8192;  // of the matmul that compares hosts
constexpr std::size_t kMostShapes = 4;

// The FLOPs that a step of the configuration spends on each shape.
std::map<MatmulShape, double> flops_by_shape(const Config& config, const Stream& compute,
                                             const Topology& topology, int rank) {
  const auto program =
      record_step(training_config(config), compute.device(), compute.threads(), rank, &topology);
  std::map<MatmulShape, double> flops;
  for (const auto& entry : program.log->entries())
    if (entry.what == OpLog::What::op && entry.op.kind == Op::Kind::product) {
      const auto& [M, N, K, none] = entry.op.sizes;
      flops[{M, N, K, config.precision.compute}] += entry.op.flops;
    }
  return flops;
}

}  // namespace

double MatmulShape::flops() const {
  return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
}

std::string in_words(const MatmulShape& s) {
  return str(s.M, " x ", s.N, " x ", s.K, " ", name(s.dtype));
}

double predicted_seconds(const MatmulShape& s, const Hardware& hardware) {
  const auto call = matmul_call(static_cast<double>(s.M), static_cast<double>(s.N),
                                static_cast<double>(s.K), arithmetic_of(s.dtype));
  return TimeModel(hardware).matmul_seconds(call);
}

std::vector<MatmulShape> matmul_shapes(const Config* config, const Stream& compute,
                                       const Topology& topology, int rank) {
  const auto side = compute.is_cuda() ? kGpuSide : kSide;
  std::vector<MatmulShape> shapes{{side, side, side, DType::fp32}, {side, side, side, DType::bf16}};
  if (config == nullptr) return shapes;
  if (compute.is_cuda()) shapes.clear();  // core/system/hardware.h has the rates of GPUs
  std::vector<std::pair<double, MatmulShape>> ranked;
  for (const auto& [shape, flops] : flops_by_shape(*config, compute, topology, rank))
    ranked.emplace_back(flops, shape);
  std::ranges::sort(ranked, std::greater<>());
  ranked.resize(std::min(ranked.size(), kMostShapes));
  for (const auto& [flops, shape] : ranked)
    shapes.push_back(shape);
  return shapes;
}

TimedMatmul::TimedMatmul(Stream& stream, const MatmulShape& shape)
    : stream_(stream), arena_(stream.device(), Arena::Memory::device, bytes(stream, shape)) {
  allocate(shape);
  random_normal(stream, x_, {.seed = 1, .purpose = 1});
  random_normal(stream, weight_, {.seed = 1, .purpose = 2});
  stream.synchronize();
}

TimedMatmul::TimedMatmul(Stream& measuring)
    : stream_(measuring), arena_(Arena::measure(measuring.device())) {}

void TimedMatmul::make() {
  matmul_forward(stream_, arena_, y_, x_, weight_);
}

std::int64_t TimedMatmul::bytes(const Stream& stream, const MatmulShape& shape) {
  Stream measuring(stream.device(), "measure", Stream::Mode::measuring, stream.threads());
  TimedMatmul product(measuring);
  product.allocate(shape);
  product.make();
  return product.arena_.peak_bytes();
}

void TimedMatmul::allocate(const MatmulShape& s) {
  x_ = arena_.allocate("x", s.dtype, {s.M, s.K});
  weight_ = arena_.allocate("weight", s.dtype, {s.N, s.K});
  y_ = arena_.allocate("y", s.dtype, {s.M, s.N});
}

}  // namespace lockstep
