// ShardWriter: writes tokens, the ends of documents and the mask of the loss as shards of a dataset
// in a directory, and its dataset.json last. It can be stopped at any time and go on from a state
// that was saved.
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
  // What was written: so many full shards, and of the next one so many tokens.
  struct State {
    std::int64_t shards = 0;
    std::int64_t tokens = 0, documents = 0;
    int mask_byte = 0;  // the bits of the last tokens, where they do not fill a byte
  };
  // Shards are called NAME_000000.bin and on; `full` are those of `from`. What the files hold
  // behind that is cut off, and removed. Throws DataError where they hold less. `background` may be
  // at work on what take_full() gave.
  ShardWriter(std::filesystem::path directory, std::string name, const ShardLayout& layout,
              const State& from, std::vector<Manifest::Shard> full, BackgroundTask& background);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  ~ShardWriter();

  // Appends `tokens` as they lie on the disk, the mask of each (1: counts), where there are masks,
  // and the ends of documents, counted in all tokens so far, each behind one of `tokens`.
  void add(std::span<const std::byte> tokens, std::span<const std::uint8_t> mask,
           std::span<const std::int64_t> ends);

  std::int64_t tokens() const { return written_ + state_.tokens; }
  const std::filesystem::path& directory() const { return directory_; }

  // What may be saved, and gone on from, once what take_full() gives is committed and the open
  // shard is synced.
  const State& state();
  const std::vector<Manifest::Shard>& shards() const { return shards_; }  // the full ones
  bool has_full() const { return !full_.empty(); }
  std::vector<std::unique_ptr<OpenShard>> take_full();
  const OpenShard* open_shard() const { return open_.get(); }  // null: none

  // Ends the last shard and writes dataset.json: `about`, with these shards.
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
  std::int64_t written_ = 0;  // tokens of full shards
  std::unique_ptr<OpenShard> open_;
  std::vector<std::unique_ptr<OpenShard>> full_;
  std::vector<std::byte> mask_bytes_;
  std::vector<std::uint64_t> ends_;
};

}  // namespace lockstep
