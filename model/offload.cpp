#include "model/offload.h"

#include "core/trace.h"

namespace lockstep {

Offload::Offload(const To& to, const std::vector<std::vector<Tensor>>& kept) : copies_(&to.copies) {
  const Arena::For use(to.pinned, Purpose::activations);
  for (const auto& tensors : kept) {
    auto& layer = layers_.emplace_back();
    for (const Tensor& t : tensors)
      layer.kept.emplace_back("offloaded", t, to.pinned);
  }
}

void Offload::wait_for(Stream& compute, std::size_t layer) {
  if (layer >= layers_.size()) return;
  const Trace::Span span(compute, Component::communication_host);
  compute.wait(layers_[layer].copied);
}

void Offload::before_forward(Stream& compute, std::size_t layer) {
  if (layer >= kRing) wait_for(compute, layer - kRing);
}

void Offload::after_forward(Stream& compute, std::size_t layer) {
  if (layer >= layers_.size()) return;
  auto& [kept, copied] = layers_[layer];
  copies_->wait(compute.record());
  for (const Mirror& mirror : kept)
    mirror.fetch(*copies_);
  copied = copies_->record();
}

void Offload::before_backward(Stream& compute, std::size_t layer) {
  wait_for(compute, layer);
}

void Offload::after_backward(Stream& compute, std::size_t layer) {
  if (layer < kRing || layer - kRing >= layers_.size()) return;
  auto& [kept, copied] = layers_[layer - kRing];
  copies_->wait(compute.record());
  for (const Mirror& mirror : kept)
    mirror.send(*copies_);
  copied = copies_->record();
}

}  // namespace lockstep
