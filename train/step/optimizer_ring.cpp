#include "train/step/optimizer_ring.h"

#include <algorithm>
#include <utility>

#include "core/trace.h"

namespace lockstep {
namespace {

Stream::Mode mode_of(const Stream& stream) {
  return stream.is_measuring() ? Stream::Mode::measuring : Stream::Mode::immediate;
}

void wait_for(Stream& compute, const Event& copied) {
  const Trace::Span span(compute, Component::communication_host);
  compute.wait(copied);
}

}  // namespace

AdamWState AdamWState::rows(std::int64_t begin, std::int64_t count) const {
  return {master ? master.rows(begin, count) : Tensor{}, m.rows(begin, count),
          v.rows(begin, count)};
}

OptimizerRing::OptimizerRing(Arena& arena, const Stream& compute, std::vector<AdamWState> host)
    : host_(std::move(host)),
      to_device_(compute.device(), "optimizer state in", mode_of(compute)),
      to_host_(compute.device(), "optimizer state out", mode_of(compute)) {
  to_device_.set_op_log(compute.op_log());
  to_host_.set_op_log(compute.op_log());
  std::int64_t elements = 0;
  for (const AdamWState& chunk : host_)
    elements = std::max(elements, chunk.m.elements());
  for (std::size_t i = 0; i < std::min(kRing, host_.size()); ++i) {
    const auto like = [&](const char* name, Tensor t) {
      return t ? arena.allocate(name, t.dtype, {elements}) : Tensor{};
    };
    ring_[i].state = {like("master weights' ring", host_.front().master),
                      like("adamw_m's ring", host_.front().m),
                      like("adamw_v's ring", host_.front().v)};
  }
}

AdamWState OptimizerRing::on_device(std::size_t chunk) const {
  return ring_[chunk % kRing].state.rows(0, host_[chunk].m.elements());
}

void OptimizerRing::copy(Stream& stream, const AdamWState& to, const AdamWState& from) {
  if (to.master) stream.copy(to.master, from.master);
  stream.copy(to.m, from.m);
  stream.copy(to.v, from.v);
}

void OptimizerRing::update(Stream& compute, FunctionRef<void(std::size_t)> update) {
  to_device_.wait(compute.record());  // compute may have written the state
  for (std::size_t chunk = 0; chunk < host_.size(); ++chunk) {
    Event& is_free = ring_[chunk % kRing].is_free;
    to_device_.wait(is_free);
    copy(to_device_, on_device(chunk), host_[chunk]);
    wait_for(compute, to_device_.record());
    update(chunk);
    to_host_.wait(compute.record());
    copy(to_host_, host_[chunk], on_device(chunk));
    is_free = to_host_.record();
  }
  wait_for(compute, to_host_.record());
}

}  // namespace lockstep
