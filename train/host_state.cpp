#include "train/host_state.h"

#include <cstring>
#include <utility>

#include "core/integer.h"
#include "train/memory.h"

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 256;  // of an arena's tensors

bool is_copied(const StateSlice& slice, HostState::Copies copies) {
  if (slice.local.device.kind == Device::Kind::cuda) return true;
  return copies == HostState::Copies::owned && slice.owned;
}

}  // namespace

std::int64_t HostState::bytes(const std::vector<StateSlice>& slices, Copies copies) {
  std::int64_t bytes = 0;
  for (const auto& slice : slices)
    if (is_copied(slice, copies)) bytes += round_up(slice.local.bytes(), kAlignment);
  return bytes;
}

HostState::HostState(std::vector<StateSlice> slices, Stream& stream, Copies copies)
    : stream_(stream),
      copying_(stream.device(), "checkpoint",
               stream.is_cuda() ? Stream::Mode::immediate : Stream::Mode::queued),
      slices_(std::move(slices)) {
  stream.synchronize();  // which may still write what is on the host already
  const auto needed = bytes(slices_, copies);
  if (needed > 0) {
    require_memory(stream.device(), {.pinned = needed},
                   "checkpoints are copied there; free some, or train a smaller model");
    memory_.emplace(stream.device(), Arena::Memory::pinned_host, needed);
  }
  for (auto& slice : slices_) {
    if (is_copied(slice, copies)) {
      copies_.push_back(
          {slice.local, memory_->allocate(slice.name, slice.local.dtype, slice.local.shape)});
      slice.local = copies_.back().here;
    } else if (slice.owned) {
      shares_ = true;
    }
  }
  if (stream.is_cuda()) return;       // pinned memory is there already
  copying_.enqueue([this](Stream&) {  // so that the first save costs what later ones cost
    for (const auto& copy : copies_)
      std::memset(copy.here.data, 0, static_cast<std::size_t>(copy.here.bytes()));
  });
}

void HostState::take() {
  copying_.wait(stream_.record());
  copying_.enqueue([this](Stream& copying) {
    for (const auto& copy : copies_)
      copying.copy(copy.here, copy.state);
  });
}

void HostState::prepare_to_read() {
  copying_.synchronize();
  stream_.synchronize();
}

void HostState::send() {
  copying_.enqueue([this](Stream& copying) {
    for (const auto& copy : copies_)
      copying.copy(copy.state, copy.here);
  });
  copying_.synchronize();
}

}  // namespace lockstep
