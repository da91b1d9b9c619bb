// data_bench [DIRECTORY]: what the data pipeline can do, each best and median of rounds.
//
//   pack      bytes of text a second, from a file in the page cache to synced shards on the disk of
//             DIRECTORY (default: the temporary directory): as one document, and as paragraphs with
//             a validation split. It writes twice as many bytes as it reads: the plain writing and
//             syncing of that many is timed in the same round, as the bound that the disk sets.
//   JSON      bytes of lines of JSON checked and their texts unescaped, a second, by one thread: of
//             paragraphs with a few escapes, and of text that is no ASCII.
//   locate    samples found in the order, a second, from sample 10^12 on: permutation and shard.
//   read      random windows read, a second, by one thread, of 257 and 1025 tokens.
//   start     of a dataset of a million shards, by its dataset.json alone: seconds, of which on the
//             processor, and the memory that it takes and keeps.
//   sums      of the windows of a million shards, made once an epoch of data.shuffle_shards.
//   pread     the bytes of random windows of 257 tokens, by as many threads as a loader has: the
//             floor of what follows.
//   loader    batches of 16 rows of 256 tokens handed out as fast as they are taken; and, with a
//             step of 10 ms between them (410 thousand tokens a second, 70 times what this CPU
//             trains of the smallest model in docs/performance.md), the share of the time that was
//             waited. Of windows, a mixture of 8 datasets, packed documents, and windows of four
//             shards at a time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/file.h"
#include "core/hash.h"
#include "core/philox.h"
#include "data/loader.h"
#include "data/manifest.h"
#include "data/order.h"
#include "data/pack/json_line.h"
#include "data/pack/pack.h"
#include "data/shard_order.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kRounds = 5;
constexpr std::int64_t kTextBytes = 512'000'000;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// `amount` over the seconds of each round.
void report(const char* what, double amount, const char* unit, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  std::printf("%-34s best %9.1f %s   median %9.1f %s\n", what, amount / seconds.front(), unit,
              amount / seconds[seconds.size() / 2], unit);
}

// Words of random letters, a paragraph every few hundred bytes.
void write_text(const fs::path& path, std::int64_t bytes, std::uint64_t seed) {
  std::string piece;
  for (std::uint64_t i = 0; piece.size() < 8'000'000; ++i) {
    const auto words = philox(1, seed, i);
    for (std::uint32_t letter = 0; letter < 2 + words[0] % 8; ++letter)
      piece += static_cast<char>('a' + (words[1] >> (3 * letter)) % 26);
    piece += words[2] % 80 == 0 ? "\n\n" : " ";
  }
  WriteFile file(path);
  while (file.size_bytes() < bytes)
    file.write(std::as_bytes(std::span(piece)));
  file.commit();
}

void write_plainly(const fs::path& path, std::int64_t bytes) {
  const std::vector<std::byte> piece(std::size_t{1} << 20, std::byte{7});
  WriteFile file(path);
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(piece.size()))
    file.write(piece);
  file.commit();
}

void bench_pack(const fs::path& directory) {
  const auto text = directory / "text";
  const auto bytes = static_cast<double>(fs::file_size(text));
  std::vector<double> whole, paragraphs, plain;
  for (int round = 0; round < kRounds; ++round) {
    PackOptions options;
    options.inputs = {text};
    options.out = directory / "packed";
    fs::remove_all(options.out);
    whole.push_back(seconds_of([&] { pack(options); }));
    options.document_separator = "\n\n";
    options.validation_share = 0.005;
    fs::remove_all(options.out);
    paragraphs.push_back(seconds_of([&] { pack(options); }));
    fs::remove(directory / "plain");
    plain.push_back(seconds_of(
        [&] { write_plainly(directory / "plain", static_cast<std::int64_t>(2 * bytes)); }));
  }
  report("pack, one document", bytes / 1e6, "MB/s", whole);
  report("pack, paragraphs, validation", bytes / 1e6, "MB/s", paragraphs);
  report("plain writing of as many bytes", bytes / 1e6, "MB/s", plain);
}

// Lines of about 3 KB, the text between other members.
void bench_json(const char* what, const std::string& word) {
  std::string text;
  for (std::uint64_t i = 0; text.size() < 3'000; ++i)
    text += philox(1, 3, i)[0] % 40 == 0 ? "\\n\\n" : word;
  const auto line = str(R"({"id": 123456, "url": "https://example.org/a/b", "text": ")", text,
                        R"(", "scores": [0.25, 1e-3, true, null], "meta": {"language": "en"}})");
  constexpr int kLines = 100'000;
  JsonLine json({"text"});
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round)
    seconds.push_back(seconds_of([&] {
      for (int i = 0; i < kLines; ++i)
        json.scan(line);
    }));
  report(what, static_cast<double>(kLines * line.size()) / 1e6, "MB/s", seconds);
}

void bench_locate(const Dataset& dataset) {
  constexpr std::int64_t kSamples = 1'000'000, kFirst = 1'000'000'000'000, kLength = 256;
  const auto samples = (dataset.tokens() - 1) / kLength;
  std::vector<double> seconds;
  std::size_t sum = 0;
  for (int round = 0; round < kRounds; ++round)
    seconds.push_back(seconds_of([&] {
      for (std::int64_t g = kFirst; g < kFirst + kSamples; ++g)
        sum += dataset.shard_of(sample_at(7, samples, g) * kLength);
    }));
  report("locate from sample 10^12", kSamples / 1e6, "M/s ", seconds);
  if (sum == 1) std::printf("\n");  // the work is used
}

void bench_shard_order() {
  constexpr std::size_t kShards = 1'000'000;
  const ShardOrder order(std::vector<std::int64_t>(kShards, 100), 16);
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round)
    seconds.push_back(seconds_of([&] { order.at(7, round * order.count()); }));
  report("sums of a million shards, an epoch", 1, "/s ", seconds);
}

void bench_read(const Dataset& dataset, std::int64_t window) {
  constexpr std::int64_t kWindows = 100'000;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(window));
  const auto samples = (dataset.tokens() - 1) / (window - 1);
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round)
    seconds.push_back(seconds_of([&] {
      for (std::int64_t g = 0; g < kWindows; ++g)
        dataset.read(tokens, sample_at(7, samples, g) * (window - 1));
    }));
  const auto name = str("read windows of ", window);
  report(name.c_str(), kWindows / 1e3, "k/s ", seconds);
  const auto rate = str("  as tokens");
  report(rate.c_str(), static_cast<double>(kWindows * window) / 1e6, "M/s ", seconds);
}

constexpr int kSequences = 16, kLength = 256, kBatches = 2'000, kSteps = 200;

void bench_pread(const fs::path& train) {
  constexpr std::int64_t kRows = std::int64_t{kBatches} * kSequences;
  const auto files = directory_entries(train);
  const ReadFile shard(*std::ranges::find(files, ".bin", &fs::path::extension));
  const auto windows = ((shard.size_bytes() - kShardHeaderBytes) / 2 - 1) / kLength;
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round)
    seconds.push_back(seconds_of([&] {
      std::vector<std::thread> threads;
      for (std::int64_t thread = 0; thread < Loader::kThreads; ++thread)
        threads.emplace_back([&, thread] {
          std::vector<std::byte> bytes(2 * (kLength + 1));
          for (auto g = thread; g < kRows; g += Loader::kThreads)
            shard.read(bytes, kShardHeaderBytes + 2 * sample_at(7, windows, g) * kLength);
        });
      for (auto& thread : threads)
        thread.join();
    }));
  report("pread of as many windows", kRows * kLength / 1e6, "M tokens/s", seconds);
}

void bench_loader(const char* what, Loader::Config config) {
  config.seed = 7;
  config.sequence_length = kLength;
  config.global_batch_sequences = kSequences;
  std::vector<double> seconds;
  double share = 0;
  for (int round = 0; round < kRounds; ++round) {
    Arena pinned(Device{}, Arena::Memory::pinned_host, std::int64_t{16} << 20);
    Loader loader(config, kSequences, 0, 1, pinned);
    std::int64_t first = 0;
    const auto take = [&] {
      loader.release(loader.batch(first, 0));
      first += kSequences;
    };
    take();  // opens files
    seconds.push_back(seconds_of([&] {
      for (int i = 0; i < kBatches; ++i)
        take();
    }));
    const auto waited = loader.waited_seconds();
    const auto all = seconds_of([&] {
      for (int i = 0; i < kSteps; ++i) {
        take();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
    share = std::max(share, (loader.waited_seconds() - waited) / all);
  }
  report(what, double{kBatches} * kSequences * kLength / 1e6, "M tokens/s", seconds);
  std::printf("%-34s worst %8.3f %%\n", "  waited with steps of 10 ms", 100 * share);
}

void bench_loaders(const fs::path& directory) {
  const auto train = (directory / "packed/train").string();
  const std::vector<DataSource> all{{.paths = {train}}};
  bench_pread(train);
  bench_loader("loader, windows", {.sources = all});
  bench_loader("loader, document mask", {.sources = all, .document_mask = true});
  bench_loader("loader, packed documents", {.sources = all, .rows = RowKind::packed});
  std::vector<DataSource> mixture;
  for (int i = 0; i < 8; ++i) {
    PackOptions options;
    fs::remove(directory / "part");
    write_text(directory / "part", kTextBytes / 8, static_cast<std::uint64_t>(i));
    options.inputs = {directory / "part"};
    options.out = directory / str("part-", i);
    options.shard_tokens = 8'000'000;
    pack(options);
    mixture.push_back({.paths = {options.out.string()}, .weight = 1.0 + i});
  }
  bench_loader("loader, mixture of 8", {.sources = mixture});
  bench_loader("loader, mixture of 8, four shards", {.sources = mixture, .shuffle_shards = 4});
}

// "VmHWM:" the most memory so far, "VmRSS:" now, in MB.
double memory_mb(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == what) {
      double kib = 0;
      status >> kib;
      return kib * 1024 / 1e6;
    }
  return 0;
}

void write_manifest(const fs::path& path, int shards) {
  Manifest manifest;
  manifest.format = {"bytes", kShardHeaderBytes, 2, 257, Boundary::front, 256};
  manifest.tokenizer_hash = ByteTokenizer().about().hash;
  for (int i = 0; i < shards; ++i) {
    char name[32];
    std::snprintf(name, sizeof name, "train_%06d.bin", i);
    manifest.shards.push_back(
        {name, 1'000'000 + i, 1'000, hash_hex(name), hash_hex(str(name, "ends")), ""});
    for (const auto& file : {std::string(name), ends_name(name)})
      std::ofstream(path.parent_path() / file);  // looked for, not opened
  }
  const auto text = manifest.dump();
  WriteFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void bench_start(const fs::path& directory) {
  constexpr int kShards = 1'000'000;
  fs::create_directories(directory);
  // By another process: what it frees this one would take for its own memory.
  if (const auto child = fork(); child == 0) {
    write_manifest(directory / kManifestName, kShards);
    _exit(0);
  } else {
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) std::abort();
  }
  const auto before = memory_mb("VmRSS:");
  std::vector<double> seconds, processor;
  for (int round = 0; round < kRounds; ++round) {
    const auto clock = std::clock();
    seconds.push_back(seconds_of([&] { const Dataset dataset({directory.string()}); }));
    processor.push_back(static_cast<double>(std::clock() - clock) / CLOCKS_PER_SEC);
  }
  const Dataset dataset({directory.string()});
  std::printf(
      "%-34s %.2f s, on the processor %.2f s, of %.0f MB; keeps %.0f MB, took at most %.0f\n",
      "start of a million shards", *std::min_element(seconds.begin(), seconds.end()),
      *std::min_element(processor.begin(), processor.end()),
      static_cast<double>(fs::file_size(directory / kManifestName)) / 1e6,
      memory_mb("VmRSS:") - before, memory_mb("VmHWM:") - before);
  fs::remove_all(directory);
}

int run(const fs::path& parent) {
  const auto directory = parent / str("data_bench-", getpid());
  fs::create_directories(directory);
  bench_start(directory / "shards");
  write_text(directory / "text", kTextBytes, 2);
  bench_pack(directory);
  bench_json("JSON, a text of ASCII", "words and ");
  bench_json("JSON, a text of others", "\xe8\xaf\x8d\xd1\x81");
  const auto train = (directory / "packed/train").string();
  const Dataset dataset({train});
  bench_locate(dataset);
  bench_shard_order();
  bench_read(dataset, 257);
  bench_read(dataset, 1025);
  bench_loaders(directory);
  fs::remove_all(directory);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int arguments, char** argument) {
  return lockstep::run(arguments > 1 ? argument[1] : std::filesystem::temp_directory_path());
}
