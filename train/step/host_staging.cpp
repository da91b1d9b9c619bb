#include "train/step/host_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/gpu.h"
#include "core/integer.h"
#include "train/step/memory.h"

namespace lockstep {
namespace {

constexpr std::int64_t kAlignment = 256;  // of tensors in an arena

bool is_on_gpu(const StateSlice& slice) {
  return slice.local.device.kind == Device::Kind::cuda;
}

// State of a GPU run that is on the host already gets no copy, because it would cost host memory.
bool is_copied(const StateSlice& slice, Device device, HostStaging::Copies copies) {
  if (slice.local.device.kind != device.kind) return false;
  return copies == HostStaging::Copies::owned
             ? slice.owned
             : copies == HostStaging::Copies::of_gpu && is_on_gpu(slice);
}

// With Copies::none a slice is read in pieces; otherwise in one piece, which has one hash.
std::int64_t most_at_once(const StateSlice& slice, HostStaging::Copies copies) {
  const auto bytes = slice.local.bytes();
  return copies == HostStaging::Copies::none ? std::min(bytes, HostStaging::kTurnBytes) : bytes;
}

// Bytes of the bounce buffer; 0: no slice needs it.
std::int64_t turn_bytes(const std::vector<StateSlice>& slices, Device device,
                        HostStaging::Copies copies) {
  std::int64_t most = 0;
  for (const auto& slice : slices)
    if (is_on_gpu(slice) && !is_copied(slice, device, copies))
      most = std::max(most, most_at_once(slice, copies));
  return most;
}

}  // namespace

std::int64_t HostStaging::bytes(const std::vector<StateSlice>& slices, Device device,
                                Copies copies) {
  std::int64_t bytes = round_up(turn_bytes(slices, device, copies), kAlignment);
  for (const auto& slice : slices)
    if (is_copied(slice, device, copies)) bytes += round_up(slice.local.bytes(), kAlignment);
  return bytes;
}

HostStaging::HostStaging(std::vector<StateSlice> slices, Stream& stream, Copies copies)
    : stream_(stream),
      copying_(stream.device(), "checkpoint",
               stream.is_cuda() ? Stream::Mode::immediate : Stream::Mode::queued) {
  stream.synchronize();  // it may still write state that is on the host
  const auto needed = bytes(slices, stream.device(), copies);
  if (needed > 0) {
    room_here(stream.device())
        .require({.pinned = needed},
                 "checkpoints are staged there; free some memory, or train a smaller model");
    memory_.emplace(stream.device(), Arena::Memory::pinned_host, needed);
  }
  Tensor place;
  if (const auto turn = turn_bytes(slices, stream.device(), copies); turn > 0)
    place = memory_->allocate("slices that take turns", DType::uint8, {turn});
  for (auto& slice : slices) {
    const bool copied = is_copied(slice, stream.device(), copies);
    shares_ = shares_ || (slice.owned && !copied);
    if (!copied && is_on_gpu(slice)) {
      add_turns(slice, place, most_at_once(slice, copies));
      continue;
    }
    if (copied) {
      copies_.push_back(
          {slice.local, memory_->allocate(slice.name, slice.local.dtype, slice.local.shape)});
      slice.local = copies_.back().here;
    }
    slices_.push_back(std::move(slice));
  }
  if (stream.is_cuda()) return;       // pinned memory is there already
  copying_.enqueue([this](Stream&) {  // touches the memory, so that the first save takes no longer
    for (const auto& copy : copies_)
      std::memset(copy.here.data, 0, static_cast<std::size_t>(copy.here.bytes()));
  });
}

void HostStaging::add_turns(const StateSlice& slice, const Tensor& place, std::int64_t most_bytes) {
  const auto all = slice.local.elements();
  const auto most = std::max<std::int64_t>(most_bytes / bytes_per_element(slice.local.dtype), 1);
  const Tensor flat = slice.local.view({all});
  for (std::int64_t begin = 0; begin == 0 || begin < all; begin += most) {
    const auto count = std::min(most, all - begin);
    const Tensor state = flat.rows(begin, count);
    StateSlice turn = slice;
    turn.piece.begin = slice.piece.begin + begin;
    turn.piece.end = turn.piece.begin + count;
    turn.local = {place.data, {count}, slice.local.dtype, place.device};
    turn.fetch = [this, here = turn.local, state] { copy_now(here, state); };
    turn.put = [this, here = turn.local, state] { copy_now(state, here); };
    slices_.push_back(std::move(turn));
  }
}

// May be called from any thread, one call at a time.
void HostStaging::copy_now(Tensor to, ConstTensor from) {
  gpu::use_again(stream_.device().index);
  copying_.copy(to, from);
  copying_.synchronize();
}

void HostStaging::take() {
  copying_.wait(stream_.record());
  copying_.enqueue([this](Stream& copying) {
    for (const auto& copy : copies_)
      copying.copy(copy.here, copy.state);
  });
}

void HostStaging::prepare_to_read() {
  copying_.synchronize();
  stream_.synchronize();
}

void HostStaging::send() {
  copying_.enqueue([this](Stream& copying) {
    for (const auto& copy : copies_)
      copying.copy(copy.state, copy.here);
  });
  copying_.synchronize();
}

}  // namespace lockstep
