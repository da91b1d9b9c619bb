#include "dist/reduction.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/integer.h"
#include "dist/collective_ring.h"
#include "kernels/elementwise.h"
#include "kernels/pieces.h"

namespace lockstep {
namespace {

// Carver hands out views of a block of memory.
class Carver {
 public:
  explicit Carver(Tensor memory) : memory_(memory) {}
  Tensor take(DType dtype, const Shape& shape) {
    const Tensor t{memory_.data + used_, shape, dtype, memory_.device};
    used_ += round_up(t.bytes(), 256);
    LOCKSTEP_CHECK(used_ <= memory_.bytes(), "a ring of ", memory_.bytes(), " bytes has none for ",
                   shape);
    return t;
  }

 private:
  Tensor memory_;
  std::int64_t used_ = 0;
};

// Bytes of chunks with `columns` columns of each piece.
std::int64_t bytes_of(const SumPath& path, std::int64_t columns) {
  const auto block = [&](std::int64_t rows, DType type) {
    return round_up(rows * columns * bytes_per_element(type), 256);
  };
  const auto pieces = block(path.domains * path.inside, path.pieces);
  if (path.by_library) return pieces + block(1, path.pieces);
  return 2 * (pieces + (path.has_both() ? block(path.domains, path.across) : 0));
}

constexpr std::size_t kSlots = 2;
// Number of chunks in the ring at the same time.
std::size_t slots_of(const SumPath& path) {
  return path.has_both() ? kSlots : 1;
}

// Upper bound: pieces in fp32, and sums of domains of two ranks each.
std::int64_t most_bytes_of(std::int64_t ranks, std::int64_t columns) {
  const auto element = bytes_per_element(DType::fp32);
  return 2 *
         (round_up(ranks * columns * element, 256) + round_up(ranks / 2 * columns * element, 256));
}

}  // namespace

SumPath::SumPath(Reduce reduce, DType compute, std::int64_t inside_, std::int64_t domains_,
                 bool all)
    : inside(inside_), domains(domains_), pieces(compute), across(DType::fp32) {
  switch (reduce) {
    case Reduce::fp32:
      if (inside == 1) pieces = DType::fp32;
      break;
    case Reduce::bf16:
      if (inside == 1 || all) across = compute;
      if (all) gathered = compute;
      break;
    case Reduce::nccl:
      inside *= std::exchange(domains, 1);
      gathered = compute;
      by_library = true;
      break;
  }
}

ReduceRing::ReduceRing(Arena& arena, Reduce reduce, DType compute,
                       std::initializer_list<const Levels*> levels, std::int64_t elements,
                       std::int64_t small_bytes)
    : reduce_(reduce), compute_(compute) {
  std::int64_t most = 0;
  for (const Levels* l : levels)
    most = std::max(most, memory_bytes(l->size(), elements, small_bytes));
  if (most > 0) memory_ = arena.allocate("reduce ring", DType::uint8, {most});
}

std::int64_t ReduceRing::memory_bytes(std::int64_t ranks, std::int64_t elements,
                                      std::int64_t small_bytes) {
  if (ranks == 1) return 0;
  constexpr std::int64_t kChunks = 4;
  const auto whole = most_bytes_of(ranks, elements);
  return std::max({std::min(whole, small_bytes),
                   std::min(round_up(divide_up(whole, kChunks), 256), kMostBytes),
                   static_cast<std::int64_t>(kSlots) * most_bytes_of(ranks, kMultiple)});
}

std::int64_t ReduceRing::chunk(const SumPath& path, std::int64_t n, std::int64_t memory_bytes) {
  if (bytes_of(path, n) <= memory_bytes) return n;
  const auto slot = memory_bytes / static_cast<std::int64_t>(slots_of(path));
  for (std::int64_t chunks = 2;; ++chunks) {
    const auto columns = round_up(divide_up(n, chunks), kMultiple);
    if (columns == kMultiple || bytes_of(path, columns) <= slot) return columns;
  }
}

std::int64_t ReduceRing::gathered_chunk(const SumPath& path, std::int64_t n,
                                        std::int64_t memory_bytes) {
  if (path.gathered == DType::fp32) return n;  // gathered in place
  const auto row = path.inside * path.domains * bytes_per_element(path.gathered);
  return std::min(n, memory_bytes / row / kMultiple * kMultiple);
}

SumPath ReduceRing::path_of(const Levels& levels, bool all) const {
  const auto inside = levels.inside->size();
  return {reduce_, compute_, inside, levels.size() / inside, all};
}

void ReduceRing::reduce_scatter(Streams streams, const Levels& levels, Tensor sum, ConstTensor in,
                                bool add) const {
  sum_part(streams, levels, path_of(levels, /*all=*/false), sum, in, add);
}

void ReduceRing::sum_part(Streams streams, const Levels& levels, const SumPath& path, Tensor sum,
                          ConstTensor in, bool add) const {
  const auto I = path.inside, A = path.domains, n = sum.elements();
  LOCKSTEP_CHECK(in.elements() == A * I * n && n % kMultiple == 0, "a reduction of ", in.elements(),
                 " elements to ", n, " on each of ", A * I, " ranks");
  Stream& stream = streams.main;
  Stream& across = path.has_both() ? streams.across : stream;
  CollectiveRing* const calls =
      stream.is_measuring() || path.by_library ? nullptr : levels.ring;  // `whole` records itself
  const auto bytes = (I - 1) * A * n * bytes_per_element(path.pieces) +
                     (A - 1) * n * bytes_per_element(path.across);
  const auto number =
      calls ? calls->begin("reduce_scatter", levels.name, bytes, stream.record()) : 0;
  const auto pieces = in.view({A, I, n});
  const auto columns = chunk(path, n, memory_.bytes());
  const auto slots = columns == n ? 1 : slots_of(path);
  const auto slot_bytes = memory_.bytes() / static_cast<std::int64_t>(slots) / 256 * 256;
  std::array<Event, kSlots> is_free;  // the slot may be filled again
  std::size_t slot = 0;
  for (std::int64_t first = 0; first < n; first += columns, slot = (slot + 1) % slots) {
    const auto m = std::min(columns, n - first);
    stream.wait(is_free[slot]);
    Carver ring(memory_.rows(static_cast<std::int64_t>(slot) * slot_bytes, slot_bytes));
    const SumPieces last{.out = sum.rows(first, m), .pieces = {}, .add = add};
    const auto add_up = [](Stream& on, ConstTensor received, SumPieces into) {
      into.pieces = received;
      on.enqueue([into](Stream& s) { sum_pieces(s, into); });
    };
    const auto exchange = [&](Stream& on, Communicator& group, Tensor sent, const SumPieces& into) {
      const auto received = ring.take(sent.dtype, {group.size(), sent.elements() / group.size()});
      group.all_to_all(received, sent, on);
      add_up(on, received, into);
    };
    const auto sent = ring.take(path.pieces, {I, A, m});
    stream.enqueue([sent, pieces, first](Stream& s) { pack_pieces(s, sent, pieces, first); });
    if (path.by_library) {
      const auto received = ring.take(path.pieces, {1, m});
      levels.whole->reduce_scatter(received, sent, stream);
      add_up(stream, received, last);
    } else if (I == 1) {
      exchange(stream, *levels.across, sent, last);
    } else if (A == 1) {
      exchange(stream, *levels.inside, sent, last);
    } else {
      const auto sums = ring.take(path.across, {A, m});
      exchange(stream, *levels.inside, sent, {.out = sums, .pieces = {}});
      across.wait(stream.record());
      exchange(across, *levels.across, sums, last);
      is_free[slot] = across.record();
    }
  }
  if (&across != &stream) stream.wait(across.record());
  if (calls != nullptr) calls->end(number, stream.record());
}

void ReduceRing::all_reduce(Streams streams, const Levels& levels, Tensor inout) const {
  const auto path = path_of(levels, /*all=*/true);
  const auto d = levels.size(), rank = levels.whole->rank();
  LOCKSTEP_CHECK(levels.whole->size() == d, "reductions without a group that gathers");
  const auto n = inout.elements() / d;
  const auto part = inout.rows(rank * n, n);
  sum_part(streams, levels, path, part, inout, /*add=*/false);
  Stream& stream = streams.main;
  if (path.gathered == DType::fp32) return levels.whole->all_gather(inout, part, stream);
  // Each rank also reads its own sums from the gathered tensor, so that it has the same rounded
  // bits as the others.
  const auto columns = gathered_chunk(path, n, memory_.bytes());
  for (std::int64_t first = 0; first < n; first += columns) {
    const auto m = std::min(columns, n - first);
    const auto all = Carver(memory_).take(path.gathered, {d, m});
    const auto mine = all.rows(rank, 1).view({m});
    stream.enqueue([=](Stream& s) { convert(s, mine, part.rows(first, m)); });
    levels.whole->all_gather(all, mine, stream);
    stream.enqueue([=](Stream& s) {
      if (m == n) return convert(s, inout, all.view({d * m}));
      for (int r = 0; r < d; ++r)
        convert(s, inout.rows(r * n + first, m), all.rows(r, 1).view({m}));
    });
  }
}

}  // namespace lockstep
