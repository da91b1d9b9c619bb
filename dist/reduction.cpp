#include "dist/reduction.h"

#include <algorithm>
#include <array>

#include "core/integer.h"
#include "dist/collective_ring.h"
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
std::int64_t bytes_of(DType wire, std::int64_t inside, std::int64_t domains, std::int64_t columns) {
  const auto fp32 = bytes_per_element(DType::fp32);
  const auto piece = columns * (inside > 1 ? bytes_per_element(wire) : fp32);
  const auto pieces = round_up(domains * inside * piece, 256);
  const auto sums = inside > 1 && domains > 1 ? round_up(domains * columns * fp32, 256) : 0;
  return 2 * (pieces + sums);
}

constexpr std::size_t kSlots = 2;
// Number of chunks in the ring at the same time.
std::size_t slots_of(std::int64_t inside, std::int64_t domains) {
  return inside > 1 && domains > 1 ? kSlots : 1;
}

// Upper bound: pieces in fp32, and sums of domains of two ranks each.
std::int64_t most_bytes_of(std::int64_t ranks, std::int64_t columns) {
  const auto element = bytes_per_element(DType::fp32);
  return 2 *
         (round_up(ranks * columns * element, 256) + round_up(ranks / 2 * columns * element, 256));
}

}  // namespace

ReduceRing::ReduceRing(Arena& arena, DType wire, std::initializer_list<const Levels*> levels,
                       std::int64_t elements, std::int64_t small_bytes)
    : wire_(wire) {
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

std::int64_t ReduceRing::chunk(DType wire, std::int64_t inside, std::int64_t domains,
                               std::int64_t n, std::int64_t memory_bytes) {
  if (bytes_of(wire, inside, domains, n) <= memory_bytes) return n;
  const auto slot = memory_bytes / static_cast<std::int64_t>(slots_of(inside, domains));
  for (std::int64_t chunks = 2;; ++chunks) {
    const auto columns = round_up(divide_up(n, chunks), kMultiple);
    if (columns == kMultiple || bytes_of(wire, inside, domains, columns) <= slot) return columns;
  }
}

void ReduceRing::reduce_scatter(Streams streams, const Levels& levels, Tensor sum, ConstTensor in,
                                bool add) const {
  const std::int64_t I = levels.inside->size(), A = levels.across->size();
  const auto n = sum.elements();
  LOCKSTEP_CHECK(in.elements() == A * I * n && n % kMultiple == 0, "a reduction of ", in.elements(),
                 " elements to ", n, " on each of ", A * I, " ranks");
  Stream& stream = streams.main;
  Stream& across = I > 1 && A > 1 ? streams.across : stream;
  CollectiveRing* const calls = stream.is_measuring() ? nullptr : levels.ring;
  const auto bytes = (I - 1) * A * n * bytes_per_element(wire_) + (A - 1) * sum.bytes();
  const auto number =
      calls ? calls->begin("reduce_scatter", levels.name, bytes, stream.record()) : 0;
  const auto pieces = in.view({A, I, n});
  const auto columns = chunk(wire_, I, A, n, memory_.bytes());
  const auto slots = columns == n ? 1 : slots_of(I, A);
  const auto slot_bytes = memory_.bytes() / static_cast<std::int64_t>(slots) / 256 * 256;
  std::array<Event, kSlots> is_free;  // the slot may be filled again
  std::size_t slot = 0;
  for (std::int64_t first = 0; first < n; first += columns, slot = (slot + 1) % slots) {
    const auto m = std::min(columns, n - first);
    stream.wait(is_free[slot]);
    Carver ring(memory_.rows(static_cast<std::int64_t>(slot) * slot_bytes, slot_bytes));
    const SumPieces last{.out = sum.rows(first, m), .pieces = {}, .add = add};
    const auto exchange = [&](Stream& on, Communicator& group, Tensor sent, SumPieces into) {
      const auto received = ring.take(sent.dtype, {group.size(), sent.elements() / group.size()});
      group.all_to_all(received, sent, on);
      into.pieces = received;
      on.enqueue([into](Stream& s) { sum_pieces(s, into); });
    };
    const auto sent = ring.take(I > 1 ? wire_ : DType::fp32, {I, A, m});
    stream.enqueue([sent, pieces, first](Stream& s) { pack_pieces(s, sent, pieces, first); });
    if (I == 1) {
      exchange(stream, *levels.across, sent, last);
    } else if (A == 1) {
      exchange(stream, *levels.inside, sent, last);
    } else {
      const auto sums = ring.take(DType::fp32, {A, m});
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
  LOCKSTEP_CHECK(levels.whole, "reductions without a group that gathers");
  const auto n = inout.elements() / levels.size();
  const auto part = inout.rows(levels.whole->rank() * n, n);
  reduce_scatter(streams, levels, part, inout);
  levels.whole->all_gather(inout, part, streams.main);
}

}  // namespace lockstep
