// What the parts of gpu_bench share: a stream, memory, random tensors, and time.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "core/philox.h"
#include "core/stream.h"
#include "kernels/elementwise.h"
#include "kernels/quantize.h"

namespace lockstep::bench {

constexpr Device kGpu{Device::Kind::cuda, 0};
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

struct Seconds {
  double best = 0, median = 0;
};

// How many figures of a table reach their goals, which the head of gpu_bench.cpp names.
class Goals {
 public:
  // What a row ends with.
  const char* mark(bool is_reached) {
    ++figures_;
    reached_ += is_reached ? 1 : 0;
    return is_reached ? "" : "  missed";
  }
  // The line below the table.
  void print() const { std::printf("goals: %d of %d reached\n", reached_, figures_); }

 private:
  int figures_ = 0, reached_ = 0;
};

class Bench {
 public:
  explicit Bench(std::int64_t device_bytes = 40 * kGiB)
      : arenas_(kGpu, {.device = device_bytes, .pinned = std::min(kGiB, device_bytes)}) {}

  Stream& stream() { return stream_; }
  Arena& arena() { return arenas_.device; }

  Tensor tensor(const Shape& shape, DType dtype, float std = 1.0f) {
    const Tensor t = arena().allocate("bench", dtype, shape);
    random_normal(stream_, t, {.seed = 1, .purpose = ++draws_, .first_index = 0, .std = std});
    return t;
  }
  Tensor zeros(const Shape& shape, DType dtype) {
    const Tensor t = arena().allocate("bench", dtype, shape);
    fill(stream_, t, 0.0f);
    return t;
  }
  // Numbers from 0 to bound - 1, or those of `value`.
  Tensor integers(const Shape& shape, const std::function<std::int64_t(std::int64_t)>& value) {
    const Arena::Scope scope(arenas_.pinned);
    const Tensor host = arenas_.pinned.allocate("bench", DType::int32, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      host.as<std::int32_t>()[i] = static_cast<std::int32_t>(value(i));
    const Tensor t = arena().allocate("bench", DType::int32, shape);
    stream_.copy(t, host);
    stream_.synchronize();
    return t;
  }
  static std::int64_t any_below(std::int64_t bound, std::int64_t i) {
    return philox(7, 7, static_cast<std::uint64_t>(i))[0] % bound;
  }

  Fp8Matrix fp8(Scaling scaling, const Shape& shape) {
    return {arena().allocate("bench", DType::fp8_e4m3, shape),
            arena().allocate("bench", DType::fp32, scales_shape(scaling, shape)), scaling};
  }

  // Of one call.
  Seconds time(const std::function<void()>& call) {
    constexpr int kCalls = 10, kRounds = 9;
    call();
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round) {
      const Event begin = stream_.record_timed();
      for (int i = 0; i < kCalls; ++i)
        call();
      const Event end = stream_.record_timed();
      end.synchronize();
      seconds.push_back(end.seconds_since(begin) / kCalls);
    }
    std::sort(seconds.begin(), seconds.end());
    return {seconds.front(), seconds[seconds.size() / 2]};
  }

 private:
  Stream stream_{kGpu, "bench"};
  Arenas arenas_;
  std::uint64_t draws_ = 0;
};

// The parts, see gpu_bench.cpp.
double copy_rate(Bench& bench);  // bytes a second, both directions counted
void memory(Bench& bench);
void matmul(Bench& bench);
void matmul_fp8(Bench& bench);
void attention(Bench& bench);
void beside(bool is_tiny);
std::vector<std::string_view> models();
void steps(std::string_view model);

}  // namespace lockstep::bench
