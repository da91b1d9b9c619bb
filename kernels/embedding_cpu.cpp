// Forward spreads tokens over threads. Backward spreads columns: a thread walks all tokens in order
// and adds its columns of each, so no two threads touch one element and each sum has one order.
#include <cstring>

#include "core/integer.h"
#include "kernels/embedding.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// Row `id` of a table; a wrong id would read or write somewhere else.
template <class T>
T* row(T* table, std::int64_t rows, std::int64_t D, std::int32_t id, const char* what) {
  LOCKSTEP_CHECK(0 <= id && id < rows, what, " ", id, " is outside [0, ", rows, ")");
  return table + id * D;
}

// table[rows_of[n]] += dy[n] in columns [begin, end), for n in order.
template <class T>
void add_rows(Tensor table, ConstTensor rows_of, ConstTensor dy, std::int64_t begin,
              std::int64_t end, const char* what) {
  const auto D = dy.shape[1];
  for (std::int64_t n = 0; n < dy.shape[0]; ++n) {
    const T* gradient = dy.as<T>() + n * D + begin;
    float* sum =
        row(table.as<float>(), table.shape[0], D, rows_of.as<std::int32_t>()[n], what) + begin;
    for_vectors(end - begin, [&](std::int64_t d, std::int64_t lanes) {
      store(sum + d, load(sum + d, lanes) + load(gradient + d, lanes), lanes);
    });
  }
}

}  // namespace

void embedding_forward(Stream& stream, Tensor y, ConstTensor ids, ConstTensor weight,
                       ConstTensor positions, ConstTensor position_weight) {
  const auto N = y.shape[0], D = y.shape[1];
  with_float(weight.dtype, [&]<class T>(T) {
    stream.parallel_ranges(N, 8, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n) {
        const T* token = row(weight.as<T>(), weight.shape[0], D, ids.as<std::int32_t>()[n], "id");
        T* out = y.as<T>() + n * D;
        if (!position_weight) {
          std::memcpy(out, token, static_cast<std::size_t>(D) * sizeof(T));
          continue;
        }
        const T* place = row(position_weight.as<T>(), position_weight.shape[0], D,
                             positions.as<std::int32_t>()[n], "position");
        for_vectors(D, [&](std::int64_t d, std::int64_t lanes) {
          store(out + d, load(token + d, lanes) + load(place + d, lanes), lanes);
        });
      }
    });
  });
}

void embedding_backward(Stream& stream, Arena& /*scratch*/, Tensor dweight, Tensor dposition_weight,
                        ConstTensor dy, ConstTensor ids, ConstTensor positions) {
  if (stream.is_measuring()) return;
  const auto D = dy.shape[1];
  constexpr std::int64_t kColumns = 2 * kLanes;  // two cache lines of fp32
  with_float(dy.dtype, [&]<class T>(T) {
    stream.parallel_ranges(divide_up(D, kColumns), 2, [&](std::int64_t first, std::int64_t last) {
      const auto begin = first * kColumns, end = std::min(D, last * kColumns);
      add_rows<T>(dweight, ids, dy, begin, end, "id");
      if (dposition_weight) add_rows<T>(dposition_weight, positions, dy, begin, end, "position");
    });
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
