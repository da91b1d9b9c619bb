// In a build without CUDA, devices() reports it. Other functions need a GPU and are never called.
#include "core/error.h"
#include "core/gpu.h"

namespace lockstep::gpu {
namespace {

[[noreturn]] void unreachable() {
  LOCKSTEP_FAIL("this build has no CUDA backend");
}

}  // namespace

Devices devices() {
  return {0, "this build has no CUDA backend; build with -DLOCKSTEP_CUDA=ON"};
}

void use(int /*device*/) {
  throw ConfigError(str("no GPU can be used: ", devices().why_not));
}

const std::vector<std::string>& cleared_variables() {
  unreachable();
}

void use_again(int /*device*/) {}

Properties properties(int /*device*/) {
  unreachable();
}
std::string pci_bus_id(int /*device*/) {
  unreachable();
}
bool are_linked(int /*device*/, int /*other*/) {
  unreachable();
}
std::string driver_version() {
  unreachable();
}
std::int64_t free_bytes() {
  unreachable();
}
std::byte* allocate(std::int64_t /*bytes*/) {
  unreachable();
}
std::byte* allocate_pinned(std::int64_t /*bytes*/) {
  unreachable();
}
void release(std::byte* /*memory*/) noexcept {}
void release_pinned(std::byte* /*memory*/) noexcept {}
void begin_range(const char* /*name*/) {}
void end_range() {}
void tensor_begins(std::byte* /*memory*/, std::int64_t /*bytes*/) noexcept {}
void tensors_end(std::byte* /*memory*/, std::int64_t /*bytes*/) noexcept {}
std::int64_t bytes_between_tensors() {
  return 0;
}
CUstream_st* create_stream(bool /*is_urgent*/) {
  unreachable();
}
void destroy(CUstream_st* /*stream*/) noexcept {}
void synchronize(CUstream_st* /*stream*/) {
  unreachable();
}
CUevent_st* create_event(bool /*timed*/) {
  unreachable();
}
void destroy(CUevent_st* /*event*/) noexcept {}
void record(CUevent_st* /*event*/, CUstream_st* /*stream*/) {
  unreachable();
}
void wait(CUstream_st* /*stream*/, CUevent_st* /*event*/) {
  unreachable();
}
void synchronize(CUevent_st* /*event*/) {
  unreachable();
}
bool is_done(CUevent_st* /*event*/) {
  unreachable();
}
double seconds_between(CUevent_st* /*begin*/, CUevent_st* /*end*/) {
  unreachable();
}
void begin_capture(CUstream_st* /*stream*/) {
  unreachable();
}
CUgraphExec_st* end_capture(CUstream_st* /*stream*/) {
  unreachable();
}
void abandon_capture(CUstream_st* /*stream*/) noexcept {}
void launch(CUgraphExec_st* /*graph*/, CUstream_st* /*stream*/) {
  unreachable();
}
void destroy(CUgraphExec_st* /*graph*/) noexcept {}
void copy(std::byte* /*to*/, const std::byte* /*from*/, std::int64_t /*bytes*/,
          CUstream_st* /*stream*/) {
  unreachable();
}

}  // namespace lockstep::gpu
