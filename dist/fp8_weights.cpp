#include "dist/fp8_weights.h"

#include <algorithm>

#include "core/integer.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"

namespace lockstep {

std::vector<ParamId> Fp8Weights::quantized_groups(int unit) const {
  std::vector<ParamId> found;
  for (int i = 0; i < static_cast<int>(layout_.specs(unit).size()); ++i)
    if (const ParamId id{unit, i}; layout_.spec(id).quantized && layout_.starts_group(id))
      found.push_back(id);
  return found;
}

// Blocks are those of the whole matrix if each part of a group starts at a block boundary.
Shape Fp8Weights::checked_shape(ParamId first) const {
  const auto scaling = weight_scaling(fp8_);
  const auto multiple = size_multiple(scaling);
  const Shape shape = layout_.group_shape(first);
  LOCKSTEP_CHECK(shape[0] % multiple == 0 && shape[1] % multiple == 0, layout_.spec(first).name,
                 " with what is stacked on it is ", shape, ", expected multiples of ", multiple,
                 " for fp8");
  if (scaling != Scaling::blocks) return shape;
  for (int i = 0; i < layout_.group_parts(first); ++i) {
    const ParamId id{first.unit, first.index + i};
    const auto part = layout_.tensor_part(id);
    LOCKSTEP_CHECK(part.parts == 1 || part.stored_size % multiple == 0, layout_.spec(id).name,
                   " has ", part.stored_size, part.dim == 0 ? " rows" : " columns", " on each of ",
                   part.parts, " tensor ranks, expected a multiple of ", multiple, " for fp8");
  }
  return shape;
}

// Without memory it only counts the bytes.
std::int64_t Fp8Weights::place(int unit, Tensor memory) {
  constexpr std::int64_t kAligned = 256;
  const auto scaling = weight_scaling(fp8_);
  std::int64_t used = 0;
  const auto take = [&](DType dtype, const Shape& shape) {
    const auto begin = used;
    used += round_up(shape.elements() * bytes_per_element(dtype), kAligned);
    return memory ? Tensor{memory.data + begin, shape, dtype, memory.device} : Tensor{};
  };
  const auto matrix = [&](const Shape& shape) {
    const Tensor q = take(DType::fp8_e4m3, shape);
    return Fp8Matrix{q, take(DType::fp32, scales_shape(scaling, shape)), scaling};
  };
  for (const ParamId first : quantized_groups(unit)) {
    const Shape shape = checked_shape(first);
    Group group{.first = first, .absmax = {}, .weight = matrix(shape), .transposed = {}};
    group.transposed = matrix({shape[1], shape[0]});
    if (memory) units_[static_cast<std::size_t>(unit)].push_back(group);
  }
  return used;
}

void Fp8Weights::allocate(Arena& arena, std::span<const std::size_t> buffers) {
  if (fp8_ == Fp8Matmuls::off) return;
  units_.resize(buffers.size());
  const auto count = *std::max_element(buffers.begin(), buffers.end()) + 1;
  std::vector<std::int64_t> bytes(count, 0);
  for (std::size_t unit = 0; unit < buffers.size(); ++unit) {
    auto& most = bytes[buffers[unit]];
    most = std::max(most, place(static_cast<int>(unit), {}));
  }
  std::vector<Tensor> memory(count);
  for (std::size_t i = 0; i < count; ++i)
    if (bytes[i] > 0) memory[i] = arena.allocate("fp8 weights", DType::uint8, {bytes[i]});
  std::int64_t groups = 0;
  for (std::size_t unit = 0; unit < buffers.size(); ++unit) {
    place(static_cast<int>(unit), memory[buffers[unit]]);
    groups += static_cast<std::int64_t>(units_[unit].size());
  }
  if (fp8_ != Fp8Matmuls::tensor) return;
  // Contiguous, so that one launch clears them and one collective combines them.
  absmax_ = arena.allocate("fp8 weights absmax", DType::fp32, {groups});
  std::int64_t g = 0;
  for (auto& unit : units_)
    for (auto& group : unit)
      group.absmax = absmax_.rows(g++, 1);
}

std::span<const Fp8Weights::Group> Fp8Weights::groups(int unit) const {
  if (units_.empty()) return {};
  return units_[static_cast<std::size_t>(unit)];
}

Tensor Fp8Weights::absmax(ParamId id) const {
  for (const auto& group : groups(id.unit))
    if (layout_.is_in_group(id, group.first)) return group.absmax;
  return {};
}

const Fp8Weights::Group* Fp8Weights::find(ParamId first) const {
  for (const auto& group : groups(first.unit))
    if (group.first == first) return &group;
  return nullptr;
}

void Fp8Weights::find_absmax(Stream& stream, int unit, ConstTensor shard) const {
  for (const auto& group : groups(unit)) {
    if (!group.absmax) continue;
    const auto mine = layout_.group_in_shard(shard, group.first);
    if (mine.elements() == 0)
      fill(stream, group.absmax, 0.0f);
    else
      lockstep::absmax(stream, group.absmax, mine);
  }
}

void Fp8Weights::quantize(Stream& stream, int unit, ConstTensor weights) const {
  for (const auto& group : groups(unit))
    lockstep::quantize(stream, group.weight, group.transposed, layout_.group(weights, group.first),
                       group.absmax);
}

}  // namespace lockstep
