// usage: fetch_shards CACHE URL OUT BYTES [XXH3_128]
//
// Fetches an object through a cache of 8 connections and copies it to OUT; without its XXH3-128 it
// is read whole first. Says on standard output how fast that was, and what it cost of the
// processor.
#include <chrono>
#include <cstdio>
#include <sys/resource.h>

#include "core/file.h"
#include "core/hash.h"
#include "data/remote/shard_cache.h"

namespace lockstep {
namespace {

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void run(const std::vector<std::string>& words) {
  if (words.size() < 5) throw UsageError("usage: fetch_shards CACHE URL OUT BYTES [XXH3_128]");
  Remote remote(process_environment(), {});
  const std::atomic<bool> stop = false;
  CachedShard shard{words[2], "", std::stoll(words[4])};
  shard.hash = words.size() > 5
                   ? words[5]
                   : hash_hex(RemoteReader(remote, stop).read_all(shard.url, shard.bytes));
  ShardCache cache({words[1], 1LL << 40}, remote);
  const auto start = std::chrono::steady_clock::now();
  const auto processor = processor_seconds();
  const ReadFile file(cache.open(shard).release(), shard.url);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const auto gigabytes = 1e-9 * static_cast<double>(shard.bytes);
  std::printf("%.3f GB/s, %.3f s of a processor a GB, %lld bytes\n", gigabytes / seconds.count(),
              (processor_seconds() - processor) / gigabytes,
              static_cast<long long>(cache.counts().fetched_bytes));
  if (words[3] != "-") write_text(words[3], read_text(file, shard.bytes));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    lockstep::run({argv, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
