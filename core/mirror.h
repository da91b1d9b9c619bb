// Mirror: a tensor of a device as the host sees it. On the CPU that is the tensor itself, and
// nothing is copied; of a GPU it is a copy in pinned memory, taken or sent when that is asked for.
#pragma once

#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

class Mirror {
 public:
  Mirror() = default;
  // Memory comes from `pinned`, for a GPU only.
  Mirror(std::string_view name, Tensor device, Arena& pinned)
      : device_(device),
        host_(device.device.kind == Device::Kind::cpu
                  ? device
                  : pinned.allocate(name, device.dtype, device.shape)) {}

  Tensor device() const { return device_; }
  Tensor host() const { return host_; }

  // In the order of the stream. The host waits for the stream before it reads, and before it writes
  // again.
  void fetch(Stream& stream) const { copy(stream, host_, device_); }
  void send(Stream& stream) const { copy(stream, device_, host_); }

 private:
  static void copy(Stream& stream, Tensor to, ConstTensor from) {
    if (to.data != from.data) stream.copy(to, from);
  }

  Tensor device_, host_;
};

}  // namespace lockstep
