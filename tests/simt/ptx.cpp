// The instructions of kernels/ptx.cuh. A warp acts in two steps: all lanes publish their operands,
// then each lane fills its registers by the tables of the PTX ISA.
#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "tests/simt/include/simt_ptx.h"
#include "tests/simt/simt.h"

namespace simt {
namespace {

struct Operands {
  unsigned a[4], b[2];
};

float half_of(unsigned packed, int half) {
  return lockstep::to_float(lockstep::BFloat16{static_cast<std::uint16_t>(packed >> (16 * half))});
}
// Each register has 2 of 8 neighbours; the registers of 4 lanes have all 8.
float a_at(const Exchange& all, int row, int k) {
  const auto& lane = all.as<Operands>(row % 8 * 4 + k % 8 / 2);
  return half_of(lane.a[row / 8 + k / 8 * 2], k % 2);
}
float b_at(const Exchange& all, int k, int column) {
  return half_of(all.as<Operands>(column * 4 + k % 8 / 2).b[k / 8], k % 2);
}

}  // namespace

void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const Exchange all(~0u, "mma.sync", &mine, sizeof mine);
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k)
      d[i] += a_at(all, lane() / 4 + i / 2 * 8, k) * b_at(all, k, lane() % 4 * 2 + i % 2);
}

unsigned shared_address(const void* p) {
  return static_cast<unsigned>(static_cast<const std::byte*>(p) - dynamic_shared());
}

void load_matrices(unsigned* to, int count, unsigned address, bool transposed) {
  const std::byte* row = dynamic_shared() + address;
  if (lane() < 8 * count) read(row, 16);
  const Exchange all(~0u, transposed ? "ldmatrix.trans" : "ldmatrix",
                     static_cast<const void*>(&row), sizeof row);
  const auto element = [&](int matrix, int r, int c) {
    unsigned short value = 0;
    std::memcpy(&value, all.as<const std::byte*>(8 * matrix + r) + 2 * c, sizeof value);
    return unsigned{value};
  };
  const int r = lane() / 4, c = lane() % 4 * 2;
  for (int m = 0; m < count; ++m)
    to[m] = transposed ? element(m, c, r) | element(m, c + 1, r) << 16
                       : element(m, r, c) | element(m, r, c + 1) << 16;
}

float exp2_approximate(float x) {
  return std::exp2(x);
}

unsigned pack_bf16(float first, float second) {
  return unsigned{lockstep::to_bf16(first).bits} | unsigned{lockstep::to_bf16(second).bits} << 16;
}

}  // namespace simt
