// Mirror is the host's view of a device tensor. On the CPU it is the tensor itself, and nothing is
// copied. On a GPU it is a copy in pinned memory, which fetch() and send() update.
#pragma once

#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

class Mirror {
 public:
  Mirror() = default;
  // Allocates from `pinned` for a GPU only.
  Mirror(std::string_view name, Tensor device, Arena& pinned)
      : device_(device),
        host_(device.device.kind == Device::Kind::cpu
                  ? device
                  : pinned.allocate(name, device.dtype, device.shape)) {}

  Tensor device() const { return device_; }
  Tensor host() const { return host_; }

  // Both run in stream order. The host must wait for the stream before it reads, and before it
  // writes again.
  void fetch(Stream& stream) const { copy(stream, host_, device_); }
  void send(Stream& stream) const { copy(stream, device_, host_); }

 private:
  static void copy(Stream& stream, Tensor to, ConstTensor from) {
    if (to.data != from.data) stream.copy(to, from);
  }

  Tensor device_, host_;
};

}  // namespace lockstep
