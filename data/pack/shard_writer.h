// ShardWriter writes tokens, document ends and the loss mask as shards of a dataset in a directory,
// and dataset.json last. It can be stopped at any time and resume from a saved state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/open_shard.h"
#include "data/pack/background_task.h"

namespace lockstep {

class ShardWriter {
 public:
  // Progress: the number of full shards, and the tokens of the next one.
  struct State {
    std::int64_t shards = 0;
    std::int64_t tokens = 0, documents = 0;
    int mask_byte = 0;  // the bits of the last tokens if they do not fill a byte
  };
  // Shards are named NAME_000000.bin and so on; `full` are those of `from`. Data after `from` is
  // truncated or removed. Throws DataError if the files have less data. `background` may still work
  // on shards from take_full().
  ShardWriter(std::filesystem::path directory, std::string name, const ShardLayout& layout,
              const State& from, std::vector<Manifest::Shard> full, BackgroundTask& background);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  ~ShardWriter();

  // Appends `tokens` in the byte layout of the file, with masks the mask of each (1: counts), and
  // document ends. Ends are counted in all tokens so far; each is after one of `tokens`.
  void add(std::span<const std::byte> tokens, std::span<const std::uint8_t> mask,
           std::span<const std::int64_t> ends);

  std::int64_t tokens() const { return written_ + state_.tokens; }
  const std::filesystem::path& directory() const { return directory_; }

  // The state that may be saved for resuming, once the shards of take_full() are committed and the
  // open shard is synced.
  const State& state();
  const std::vector<Manifest::Shard>& shards() const { return shards_; }  // the full shards
  bool has_full() const { return !full_.empty(); }
  std::vector<std::unique_ptr<OpenShard>> take_full();
  const OpenShard* open_shard() const { return open_.get(); }  // null if no shard is open

  // Ends the last shard and writes dataset.json: `about` with the shards.
  Manifest finish(Manifest about);

 private:
  void remove_what_is_behind() const;
  void start_shard();
  void end_shard();
  void add_mask(std::span<const std::uint8_t> mask);

  std::filesystem::path directory_;
  std::string name_;
  ShardLayout layout_;
  State state_;
  std::vector<Manifest::Shard> shards_;
  BackgroundTask& background_;
  std::int64_t written_ = 0;  // number of tokens in full shards
  std::unique_ptr<OpenShard> open_;
  std::vector<std::unique_ptr<OpenShard>> full_;
  std::vector<std::byte> mask_bytes_;
  std::vector<std::uint64_t> ends_;
};

}  // namespace lockstep
