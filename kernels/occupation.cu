#include "kernels/launch.cuh"
#include "kernels/occupation.cuh"

namespace lockstep {
namespace {

__global__ void occupy_kernel(const volatile std::int32_t* stop, long long cycles) {
  const long long begin = clock64();
  while (*stop == 0 && clock64() - begin < cycles)
    __nanosleep(1000);
}

constexpr std::int64_t kPinnedBytes = 1024;
constexpr long long kMostCycles = 20'000'000'000;  // ten seconds at 2 GHz
#ifdef LOCKSTEP_SIMT
constexpr std::int32_t kGo = 1;  // a launch on the simulated GPU waits for the end of the kernel
#else
constexpr std::int32_t kGo = 0;
#endif

}  // namespace

Occupation::Occupation(Device gpu, int multiprocessors)
    : multiprocessors_(multiprocessors),
      stream_(gpu, "occupation", Stream::Mode::immediate, 1, Stream::Priority::urgent),
      pinned_(gpu, Arena::Memory::pinned_host, kPinnedBytes),
      stop_(pinned_.allocate("stop", DType::int32, {1})) {}

void Occupation::begin() {
  *stop_.as<std::int32_t>() = kGo;
  launch(stream_, {static_cast<unsigned>(multiprocessors_), 1, most_shared_bytes(stream_)},
         occupy_kernel, stop_.as<std::int32_t>(), kMostCycles);
}

// The kernel reads pinned memory of this object until it ends.
Occupation::~Occupation() {
  try {
    end();
  } catch (const Error&) {  // the device failed: nothing runs
  }
}

void Occupation::request_stop() {
  *static_cast<volatile std::int32_t*>(stop_.as<std::int32_t>()) = 1;
}

void Occupation::end() {
  request_stop();
  stream_.synchronize();
}

}  // namespace lockstep
