#include "train/host_state.h"

#include <utility>

#include "core/integer.h"
#include "train/memory.h"

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 256;  // of an arena's tensors

bool is_on_gpu(const StateSlice& slice) {
  return slice.local.device.kind == Device::Kind::cuda;
}

}  // namespace

std::int64_t HostState::pinned_bytes(const std::vector<StateSlice>& slices) {
  std::int64_t bytes = 0;
  for (const auto& slice : slices)
    if (is_on_gpu(slice)) bytes += round_up(slice.local.bytes(), kAlignment);
  return bytes;
}

HostState::HostState(std::vector<StateSlice> slices, Stream& stream)
    : stream_(stream), slices_(std::move(slices)) {
  if (!stream.is_cuda()) return;
  stream.synchronize();  // which may still write what is on the host already
  const auto bytes = pinned_bytes(slices_);
  if (bytes == 0) return;
  require_memory(stream.device(), {.pinned = bytes},
                 "checkpoints of a GPU's state are copied there; free some, or train a smaller "
                 "model");
  pinned_.emplace(stream.device(), Arena::Memory::pinned_host, bytes);
  for (auto& slice : slices_) {
    if (!is_on_gpu(slice)) continue;
    mirrors_.emplace_back(slice.name, slice.local, *pinned_);
    slice.local = mirrors_.back().host();
  }
}

void HostState::fetch() const {
  for (const auto& mirror : mirrors_)
    mirror.fetch(stream_);
  stream_.synchronize();
}

void HostState::send() const {
  for (const auto& mirror : mirrors_)
    mirror.send(stream_);
  stream_.synchronize();
}

}  // namespace lockstep
