// Forward divides tokens over threads. Backward divides columns: a thread reads all tokens in order
// and adds its columns of each. So no two threads touch one element, and each sum has one order.
#include <algorithm>

#include "core/integer.h"
#include "kernels/embedding.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// Rows describes the rows of a table that this rank has.
struct Rows {
  const char* what;  // name of an index, for messages
  std::int64_t all, first, count;

  // Returns the place of row `id`, or -1 if another rank has it. Throws on an id outside the table,
  // which would access memory out of bounds.
  std::int64_t find(std::int32_t id) const {
    LOCKSTEP_CHECK(0 <= id && id < all, what, " ", id, " is outside [0, ", all, ")");
    return first <= id && id < first + count ? id - first : -1;
  }
};
Rows token_rows(ConstTensor weight, const EmbeddingPart& part) {
  return {"id", part.table_rows, part.first_id, weight.shape[0]};
}
Rows position_rows(ConstTensor position_weight) {
  return {"position", position_weight.shape[0], 0, position_weight.shape[0]};
}

// Adds dy[n] to table[row of ids[n]] in columns [begin, end), for n in order.
template <class T>
void add_rows(Tensor table, const Rows& rows, ConstTensor ids, ConstTensor dy, std::int64_t begin,
              std::int64_t end) {
  const auto D = dy.shape[1];
  for (std::int64_t n = 0; n < dy.shape[0]; ++n) {
    const auto row = rows.find(ids.as<std::int32_t>()[n]);
    if (row < 0) continue;
    const T* gradient = dy.as<T>() + n * D + begin;
    float* sum = table.as<float>() + row * D + begin;
    for_vectors(end - begin, [&](std::int64_t d, std::int64_t lanes) {
      store(sum + d, load(sum + d, lanes) + load(gradient + d, lanes), lanes);
    });
  }
}

// Computes y = token + place; one or both may be absent.
template <class T>
void embed(T* y, const T* token, const T* place, std::int64_t D) {
  if (token != nullptr && place != nullptr)
    for_vectors(D, [&](std::int64_t d, std::int64_t lanes) {
      store(y + d, load(token + d, lanes) + load(place + d, lanes), lanes);
    });
  else if (token != nullptr || place != nullptr)
    std::copy_n(token != nullptr ? token : place, D, y);
  else
    std::fill_n(y, D, T{});
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& args) {
  const auto N = args.y.shape[0], D = args.y.shape[1];
  const auto& part = args.part;
  const auto tokens = token_rows(args.weight, part);
  with_float(args.weight.dtype, [&]<class T>(T) {
    stream.parallel_ranges(N, 8, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n) {
        const T *token = nullptr, *place = nullptr;
        if (const auto row = tokens.find(args.ids.as<std::int32_t>()[n]); row >= 0)
          token = args.weight.as<T>() + row * D;
        if (args.position_weight && part.position_begin <= n && n < part.position_end)
          place =
              args.position_weight.as<T>() +
              D * position_rows(args.position_weight).find(args.positions.as<std::int32_t>()[n]);
        embed(args.y.as<T>() + n * D, token, place, D);
      }
    });
  });
}

void embedding_backward(Stream& stream, Arena& /*scratch*/, const EmbeddingBackward& args) {
  if (stream.is_measuring()) return;
  const auto D = args.dy.shape[1];
  const auto from = args.part.position_begin, count = args.part.position_end - from;
  constexpr std::int64_t kColumns = 2 * kLanes;  // two cache lines of fp32
  with_float(args.dy.dtype, [&]<class T>(T) {
    stream.parallel_ranges(divide_up(D, kColumns), 2, [&](std::int64_t first, std::int64_t last) {
      const auto begin = first * kColumns, end = std::min(D, last * kColumns);
      add_rows<T>(args.dweight, token_rows(args.dweight, args.part), args.ids, args.dy, begin, end);
      if (args.dposition_weight)
        add_rows<T>(args.dposition_weight, position_rows(args.dposition_weight),
                    args.positions.rows(from, count), args.dy.rows(from, count), begin, end);
    });
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
