// Twins owns tensors on the host and on a GPU, runs an operator on both, and compares the results.
// The tests of this folder run in CI on the simulated GPU of tests/simt, and on a real one.
#pragma once

#include <cstdlib>
#include <functional>

#include "tests/kernels/draw.h"

namespace lockstep::testing {

struct Twin {
  Tensor host, device;
};

// Side has the stream, the scratch and the tensors of one of the two sides.
struct Side {
  Stream& stream;
  Arena& scratch;
  bool is_host;
  Tensor operator()(const Twin& t) const { return is_host ? t.host : t.device; }
};

class Twins {
 public:
  explicit Twins(std::uint64_t seed) : bench_{.seed = seed, .host_bytes = 4096 * kMiB} {}

  Bench& bench() { return bench_; }
  Stream& stream() { return stream_; }
  Arena& arena() { return arena_; }

  Twin random(const Shape& shape, DType dtype, float scale = 1.0f) {
    return add(bench_.random(shape, dtype, scale));
  }
  Twin poisoned(const Shape& shape, DType dtype) { return add(bench_.poisoned(shape, dtype)); }
  Twin integers(const std::vector<std::int32_t>& values, Shape shape = {}) {
    return add(bench_.integers(values, shape));
  }
  Twin integers_below(std::int64_t bound, const Shape& shape) {
    std::vector<std::int32_t> values;
    const auto purpose = ++bench_.draws;
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      values.push_back(
          static_cast<std::int32_t>(philox(bench_.seed, purpose, static_cast<std::uint64_t>(i))[0] %
                                    static_cast<std::uint64_t>(bound)));
    return add(bench_.integers(values, shape));
  }
  // Adds a tensor of the host, with a copy on the device.
  Twin add(Tensor host) {
    Twin t{host, arena_.allocate("twin", host.dtype, host.shape)};
    upload(t.device, host);
    all_.push_back(t);
    return t;
  }

  // Runs `operate` on the host once, and on the device twice, which must give the same bits. Each
  // run starts from the current values of the host's tensors.
  void run(const std::function<void(const Side&)>& operate) {
    std::vector<Tensor> before;
    for (const Twin& t : all_)
      before.push_back(bench_.copy(t.host));
    const auto run_on_device = [&] {
      for (std::size_t i = 0; i < all_.size(); ++i)
        upload(all_[i].device, before[i]);
      operate({stream_, arena_, false});
      std::vector<Tensor> after;
      for (const Twin& t : all_)
        after.push_back(download(t.device));
      return after;
    };
    operate({bench_.stream, bench_.arena, true});
    const auto first = run_on_device(), second = run_on_device();
    for (std::size_t i = 0; i < all_.size(); ++i)
      expect_bitwise_equal(second[i], first[i], str("run again: tensor ", i));
  }

  // Compares the values of the device with those of the host, relative to the largest of the host.
  void expect_close(const Twin& t, const std::string& what, double magnitude = 0) {
    testing::expect_close(download(t.device), doubles(t.host), tolerance(t.host.dtype), what,
                          magnitude);
  }
  void expect_equal(const Twin& t, const std::string& what) {
    expect_bitwise_equal(download(t.device), t.host, what);
  }

  Tensor download(ConstTensor device) {
    const Tensor host = bench_.arena.allocate("download", device.dtype, device.shape);
    for_pieces(host.bytes(), [&](std::int64_t begin, Tensor through) {
      stream_.copy(through, ConstTensor{device.data + begin, through.shape, through.dtype, kGpu});
      stream_.synchronize();
      std::copy_n(through.data, through.bytes(), host.data + begin);
    });
    return host;
  }
  void upload(Tensor device, ConstTensor host) {
    for_pieces(host.bytes(), [&](std::int64_t begin, Tensor through) {
      std::copy_n(host.data + begin, through.bytes(), through.data);
      stream_.copy({device.data + begin, through.shape, through.dtype, kGpu}, through);
      stream_.synchronize();
    });
  }

 private:
  static constexpr Device kGpu{Device::Kind::cuda, 0};
  static constexpr std::int64_t kMiB = std::int64_t{1} << 20;

  // Calls body(begin, through) for all bytes, in pieces that fit in pinned memory.
  void for_pieces(std::int64_t bytes, const std::function<void(std::int64_t, Tensor)>& body) {
    for (std::int64_t begin = 0; begin < bytes; begin += pinned_.capacity_bytes()) {
      const Arena::Scope scope(pinned_);
      const auto n = std::min(bytes - begin, pinned_.capacity_bytes());
      body(begin, pinned_.allocate("piece", DType::uint8, {n}));
    }
  }

  Bench bench_;
  Stream stream_{kGpu, "test"};
  Arena arena_{kGpu, Arena::Memory::device, 512 * kMiB};
  Arena pinned_{kGpu, Arena::Memory::pinned_host, 16 * kMiB};
  std::vector<Twin> all_;
};

// absmax, on each side, is exactly the largest magnitude of what that side stored.
inline void expect_absmax(Twins& t, const Twin& absmax, const Twin& of) {
  const auto check = [](ConstTensor found, ConstTensor values, const char* side) {
    SCOPED_TRACE(side);
    expect_absmax(found, values);
  };
  check(absmax.host, of.host, "host");
  check(t.download(absmax.device), t.download(of.device), "device");
}

// The limits of random shapes. A real GPU has larger ones, unless LOCKSTEP_SMALL_SHAPES is set, as
// under compute-sanitizer.
struct CudaTest : ::testing::TestWithParam<DType> {
  static std::int64_t most(std::int64_t simulated, [[maybe_unused]] std::int64_t real) {
#ifndef LOCKSTEP_SIMT
    if (std::getenv("LOCKSTEP_SMALL_SHAPES") == nullptr) return real;
#endif
    return simulated;
  }
};

}  // namespace lockstep::testing
