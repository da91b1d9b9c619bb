#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/integer.h"
#include "kernels/attention.h"
#include "kernels/reduce.h"

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/attention_online_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {

void attention_forward(Stream& stream, Arena& scratch, Tensor out, Tensor lse, ConstTensor qkv,
                       ConstTensor document_start, Tensor absmax) {
  const auto B = lse.shape[0], T = lse.shape[2];
  const auto H = out.shape[1], K = out.shape[2], all = qkv.shape[1], G = (all - H) / 2;
  const auto heads = H / G, blocks = task_blocks(B * G, heads, T, stream.threads());
  with_float(qkv.dtype, [&]<class E>(E) {
    const Arena::Scope scope(scratch);
    const auto bytes = online_bytes<E>(blocks * heads, K);
    const auto memory = scratch.allocate("attention", DType::uint8, {stream.threads(), bytes});
    if (stream.is_measuring()) return;
    const auto chunk = blocks * kBlock, chunks = divide_up(T, chunk);
    stream.parallel_for(chunks * B * G, [&](std::int64_t task, int thread) {
      const auto b = task % (B * G) / G, g = task % G;
      const auto begin = (chunks - 1 - task / (B * G)) * chunk;  // chunks with most keys first
      const E* tokens = qkv.as<E>() + b * T * all * K;
      attend_online<E>({.q = tokens + g * heads * K,
                        .k = tokens + (H + g) * K,
                        .v = tokens + (H + G + g) * K,
                        .out = out.as<E>() + (b * T * H + g * heads) * K,
                        .lse = lse.as<float>() + (b * H + g * heads) * T,
                        .q_stride = all * K,
                        .kv_stride = all * K,
                        .out_stride = H * K,
                        .lse_stride = T,
                        .first = first_keys(document_start, b),
                        .last = nullptr,
                        .heads = heads,
                        .begin = begin,
                        .count = std::min(chunk, T - begin),
                        .K = K},
                       {memory.data + thread * bytes});
    });
  });
  if (absmax) lockstep::absmax(stream, absmax, out);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"
