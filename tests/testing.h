// What tests share: a CPU stream and arena, random and poisoned tensors, comparison in float64, and
// one table of tolerances.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/philox.h"
#include "core/stream.h"

namespace lockstep::testing {

using Doubles = std::vector<double>;

// Two threads, so that results that depend on threads show; 256 MiB, so that tests stay small.
struct Bench {
  std::uint64_t seed = 1234;
  int threads = 2;
  std::int64_t host_bytes = std::int64_t{256} << 20;
  Stream stream{Device{}, "test", Stream::Mode::immediate, threads};
  Arena arena{Device{}, Arena::Memory::host, host_bytes};
  std::uint64_t draws = 0;

  // Uniform in [-scale, scale].
  Tensor random(const Shape& shape, DType dtype, float scale = 1.0f) {
    Tensor t = arena.allocate("random", dtype, shape);
    const auto purpose = ++draws;
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      const auto word = philox(seed, purpose, static_cast<std::uint64_t>(i))[0];
      set(t, i, scale * (2 * uniform_open(word) - 1));
    }
    return t;
  }
  // Filled with NaN (or a huge negative integer): an output that a kernel must overwrite.
  Tensor poisoned(const Shape& shape, DType dtype) {
    Tensor t = arena.allocate("poisoned", dtype, shape);
    for (std::int64_t i = 0; i < t.elements(); ++i)
      set(t, i, std::numeric_limits<float>::quiet_NaN());
    return t;
  }
  Tensor integers(const std::vector<std::int32_t>& values, Shape shape = {}) {
    if (shape.rank == 0) shape = {static_cast<std::int64_t>(values.size())};
    Tensor t = arena.allocate("integers", DType::int32, shape);
    std::copy(values.begin(), values.end(), t.as<std::int32_t>());
    return t;
  }
  Tensor copy(ConstTensor t) {
    Tensor c = arena.allocate("copy", t.dtype, t.shape);
    std::copy(t.data, t.data + t.bytes(), c.data);
    return c;
  }

  static void set(Tensor t, std::int64_t i, double value) {
    switch (t.dtype) {
      case DType::fp32: t.as<float>()[i] = static_cast<float>(value); break;
      case DType::bf16: t.as<BFloat16>()[i] = to_bf16(static_cast<float>(value)); break;
      case DType::int32:
        t.as<std::int32_t>()[i] =
            std::isnan(value) ? std::numeric_limits<std::int32_t>::min() : static_cast<int>(value);
        break;
      default: t.data[i] = static_cast<std::byte>(static_cast<int>(value)); break;
    }
  }
};

inline double get(ConstTensor t, std::int64_t i) {
  if (t.dtype == DType::fp32) return t.as<float>()[i];
  if (t.dtype == DType::bf16) return to_float(t.as<BFloat16>()[i]);
  if (t.dtype == DType::int32) return t.as<std::int32_t>()[i];
  LOCKSTEP_FAIL("no float64 value of ", name(t.dtype));
}

inline Doubles doubles(ConstTensor t) {
  Doubles values;
  if (!t) return values;
  for (std::int64_t i = 0; i < t.elements(); ++i)
    values.push_back(get(t, i));
  return values;
}

// Suffix of a test that runs per dtype: INSTANTIATE_TEST_SUITE_P(types, X, kFloatTypes,
// dtype_name).
inline const auto kFloatTypes = ::testing::Values(DType::fp32, DType::bf16);
inline std::string dtype_name(const ::testing::TestParamInfo<DType>& p) {
  return name(p.param);
}

// Relative to the largest expected magnitude. fp32: rounding of sums of a few thousand terms. bf16:
// one rounding of the result (2^-9) and of an intermediate or two.
inline double tolerance(DType dtype) {
  return dtype == DType::bf16 ? 8e-3 : 4e-6;
}

// absmax [1] is exactly the largest magnitude in t.
inline void expect_absmax(ConstTensor absmax, ConstTensor t) {
  double most = 0;
  for (const double v : doubles(t))
    most = std::max(most, std::abs(v));
  EXPECT_EQ(get(absmax, 0), most) << "absmax";
}

// Every element of `actual` is within `relative` x max |expected| of `expected`. `magnitude`, of
// the terms that an element is a sum of, counts where it is larger: by chance a few sums may all be
// near 0, while their rounding is not.
inline void expect_close(ConstTensor actual, const Doubles& expected, double relative,
                         const std::string& what, double magnitude = 0) {
  ASSERT_EQ(actual.elements(), static_cast<std::int64_t>(expected.size())) << what;
  double largest = magnitude, worst = 0;
  std::int64_t where = 0;
  for (const double e : expected)
    if (std::isfinite(e)) largest = std::max(largest, std::abs(e));
  for (std::int64_t i = 0; i < actual.elements(); ++i) {
    const double is = get(actual, i), should = expected[static_cast<std::size_t>(i)];
    const double difference = is == should ? 0 : std::abs(is - should);  // infinities too
    if (!(difference <= worst)) {                                        // catches NaN
      worst = difference;
      where = i;
    }
    if (std::isnan(difference)) break;
  }
  EXPECT_LE(worst, relative * largest)
      << what << ": element " << where << " of " << actual.shape.elements() << " is "
      << get(actual, where) << ", expected " << expected[static_cast<std::size_t>(where)];
}

inline void expect_bitwise_equal(ConstTensor a, ConstTensor b, const std::string& what) {
  ASSERT_EQ(a.bytes(), b.bytes()) << what;
  if (a.bytes() == 0) return;
  const bool same = std::memcmp(a.data, b.data, static_cast<std::size_t>(a.bytes())) == 0;
  EXPECT_TRUE(same) << what << " differ";
}

// d(loss)/dx by central differences in float64; loss reads x.
template <class Loss>
Doubles finite_differences(Doubles& x, Loss&& loss, double h = 1e-5) {
  Doubles gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + h;
    const double above = loss();
    x[i] = kept - h;
    const double below = loss();
    x[i] = kept;
    gradient[i] = (above - below) / (2 * h);
  }
  return gradient;
}

inline void expect_close(const Doubles& actual, const Doubles& expected, double relative,
                         const std::string& what, double magnitude = 0) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = magnitude;
  for (const double e : expected)
    largest = std::max(largest, std::abs(e));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(actual[i] - expected[i]) <= relative * largest) continue;
    ADD_FAILURE() << what << ": element " << i << " of " << actual.size() << " is " << actual[i]
                  << ", expected " << expected[i] << " within " << relative * largest;
    return;  // of many wrong ones the first
  }
}

}  // namespace lockstep::testing
