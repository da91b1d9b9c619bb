#include "dist/param_layout.h"

#include <algorithm>
#include <utility>

#include "core/integer.h"

namespace lockstep {

const ParamLayout::Unit& ParamLayout::at(int unit) const {
  LOCKSTEP_CHECK(0 <= unit && unit < units(), "unit ", unit, " of ", units());
  return units_[static_cast<std::size_t>(unit)];
}

const ParamLayout::Part& ParamLayout::part_of(ParamId id) const {
  const auto& parts = at(id.unit).parts;
  LOCKSTEP_CHECK(0 <= id.index && id.index < static_cast<int>(parts.size()), "parameter ", id.index,
                 " of ", parts.size(), " in unit ", at(id.unit).name);
  return parts[static_cast<std::size_t>(id.index)];
}

const ParamSpec& ParamLayout::spec(ParamId id) const {
  part_of(id);
  return at(id.unit).specs[static_cast<std::size_t>(id.index)];
}

bool ParamLayout::is_in_group(ParamId id, ParamId first) const {
  return id.unit == first.unit && first.index <= id.index &&
         id.index < first.index + part_of(first).group_parts;
}

int ParamLayout::add_unit(std::string name, Keep keep) {
  LOCKSTEP_CHECK(!laid_out_, "unit ", name, " is added too late");
  units_.push_back({.name = std::move(name), .keep = keep, .specs = {}, .parts = {}});
  return units() - 1;
}

ParamLayout::Part ParamLayout::make_part(const ParamSpec& spec) const {
  Part part{.begin = 0, .stored = spec.shape};
  if (spec.stored_rows != 0) {
    LOCKSTEP_CHECK(spec.stored_rows >= spec.shape[0], spec.name, " has ", spec.shape[0],
                   " rows, stored as ", spec.stored_rows);
    part.stored.size[0] = spec.stored_rows;
  }
  auto rows = spec.shape[0];
  if (spec.tensor_dim >= 0) {
    auto& size = part.stored.size[static_cast<std::size_t>(spec.tensor_dim)];
    if (size % place_.tensors != 0)
      throw ConfigError(str(spec.name, " is stored as ", part.stored, ": ", place_.tensors,
                            " tensor ranks do not divide its ", size,
                            spec.tensor_dim == 0 ? " rows" : " columns"));
    size /= place_.tensors;
    if (spec.tensor_dim == 0) rows = std::clamp<std::int64_t>(rows - place_.tensor * size, 0, size);
  }
  part.elements = rows * (part.stored[0] == 0 ? 0 : part.stored.elements() / part.stored[0]);
  return part;
}

std::vector<ParamId> ParamLayout::declare_stacked(int unit, std::vector<ParamSpec> specs) {
  LOCKSTEP_CHECK(!specs.empty(), "an empty stacked group");
  at(unit);
  auto& u = units_[static_cast<std::size_t>(unit)];
  std::vector<ParamId> ids;
  const auto shape = specs.front().shape;
  const auto dim = specs.front().tensor_dim;
  for (auto& spec : specs) {
    LOCKSTEP_CHECK(!laid_out_, spec.name, " is declared too late");
    auto as_first = spec.shape;
    as_first.size[0] = shape[0];
    LOCKSTEP_CHECK(as_first == shape, spec.name, " is ", spec.shape, ", stacked on ", shape,
                   "; parts of a group may differ in dimension 0 only");
    LOCKSTEP_CHECK(spec.tensor_dim == dim && dim < 2 && dim < shape.rank, spec.name,
                   " is split along dimension ", spec.tensor_dim, ", its group along ", dim);
    LOCKSTEP_CHECK(specs.size() == 1 || spec.stored_rows == 0, spec.name,
                   " is stacked and has padding rows");
    ids.push_back({unit, static_cast<int>(u.parts.size())});
    u.parts.push_back(make_part(spec));
    u.specs.push_back(std::move(spec));
  }
  u.parts[static_cast<std::size_t>(ids.front().index)].group_parts = static_cast<int>(ids.size());
  return ids;
}

void ParamLayout::lay_out() {
  LOCKSTEP_CHECK(!laid_out_, "parameters are allocated twice");
  laid_out_ = true;
  for (auto& u : units_) {
    std::int64_t end = 0;
    for (const bool split : {true, false}) {
      if (!split) u.split = end;
      for (std::size_t i = 0; i < u.parts.size(); ++i) {
        if ((u.specs[i].tensor_dim >= 0) != split) continue;
        if (u.parts[i].group_parts > 0) end = round_up(end, kAlignedElements);
        u.parts[i].begin = end;
        end += u.parts[i].stored.elements();
      }
      end = round_up(end, kAlignedElements);
    }
    u.elements = round_up(end, kAlignedElements * place_.shards * place_.copies);
  }
}

std::int64_t ParamLayout::replicated_from(int unit) const {
  const auto n = shard_elements(unit);
  return std::clamp<std::int64_t>(at(unit).split - place_.shard * n, 0, n);
}

std::vector<Segment> ParamLayout::segments(int unit) const {
  const auto& u = at(unit);
  const auto n = shard_elements(unit), begin = place_.shard * n;
  std::vector<Segment> segments;
  for (std::size_t i = 0; i < u.parts.size(); ++i) {
    const Part& p = u.parts[i];
    const auto from = std::max(begin, p.begin), to = std::min(begin + n, p.begin + p.elements);
    if (from < to)
      segments.push_back({.id = {unit, static_cast<int>(i)},
                          .shard_begin = from - begin,
                          .logical_begin = from - p.begin,
                          .count = to - from});
  }
  return segments;
}

std::vector<ParamLayout::Range> ParamLayout::added_ranges(int unit) const {
  const Unit& u = at(unit);
  std::vector<Range> set, added;
  for (std::size_t i = 0; i < u.parts.size(); ++i)
    if (u.specs[i].grad_is_set) set.push_back({u.parts[i].begin, u.parts[i].stored.elements()});
  std::ranges::sort(set, {}, &Range::begin);
  std::int64_t end = 0;
  const auto add_to = [&](std::int64_t begin) {
    if (begin > end) added.push_back({end, begin - end});
  };
  for (const Range& range : set) {
    add_to(range.begin);
    end = range.begin + range.count;
  }
  add_to(u.elements);
  return added;
}

Shape ParamLayout::group_shape(ParamId first) const {
  const Part& p = part_of(first);
  LOCKSTEP_CHECK(p.group_parts > 0, spec(first).name, " does not start a stacked group");
  Shape whole = p.stored;
  for (int i = 1; i < p.group_parts; ++i)
    whole.size[0] += part_of({first.unit, first.index + i}).stored[0];
  return whole;
}

ParamLayout::Range ParamLayout::range_in_shard(ParamId first) const {
  const auto n = shard_elements(first.unit), shard = place_.shard * n;
  const auto group = part_of(first).begin, end = group + group_shape(first).elements();
  const auto from = std::clamp(group, shard, shard + n), to = std::clamp(end, shard, shard + n);
  return {from - shard, to - from};
}

ParamLayout::TensorPart ParamLayout::tensor_part(ParamId id) const {
  const int dim = spec(id).tensor_dim;
  if (dim < 0) return {};
  return {.dim = dim,
          .parts = place_.tensors,
          .part = place_.tensor,
          .stored_size = part_of(id).stored[dim]};
}

ParamLayout::Indices ParamLayout::indices(ParamId id) const {
  const auto& s = spec(id);
  const auto all = std::max<std::int64_t>(s.shape.elements(), 1);
  const TensorPart part = tensor_part(id);
  if (part.dim == 1)
    return {part.part * part.stored_size, part.stored_size, s.shape.elements() / s.shape[0]};
  const auto row = s.shape[0] == 0 ? 0 : s.shape.elements() / s.shape[0];
  return {part.part * part.stored_size * row, all, all};
}

}  // namespace lockstep
