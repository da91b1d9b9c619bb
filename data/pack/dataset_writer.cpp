#include "data/pack/dataset_writer.h"

#include <span>
#include <utility>

#include "core/file.h"
#include "core/mix.h"

namespace lockstep {

bool is_validation(std::int64_t document, double share) {
  const double begin = static_cast<double>(document) * share;
  const double end = static_cast<double>(document + 1) * share;
  for (auto stretch = static_cast<std::uint64_t>(begin); static_cast<double>(stretch) < end;
       ++stretch) {
    const auto hash = mix64(stretch + 1);
    const double point = static_cast<double>(stretch) + static_cast<double>(hash >> 11) * 0x1p-53;
    if (begin <= point && point < end) return true;
  }
  return false;
}

DatasetWriter::DatasetWriter(PackDirectory& directory, double validation_share,
                             const ShardLayout& layout)
    : directory_(directory), validation_share_(validation_share), layout_(layout) {
  const bool two = validation_share > 0;
  if (directory.record()) record_ = *directory.record();
  record_.splits.resize(two ? 2 : 1);
  auto full = std::exchange(record_.shards, {});
  full.resize(record_.splits.size());
  for (std::size_t i = 0; i < record_.splits.size(); ++i) {
    const char* name = i == 0 ? "train" : "validation";
    const auto path = two ? directory.dataset() / name : directory.dataset();
    make_directories(path);
    Split split;
    for (const auto& shard : full[i])
      split.documents += shard.documents;
    split.documents += record_.splits[i].documents;
    // A document that continues has started but not ended; it counts too.
    if (record_.position.inside && record_.split == static_cast<std::int64_t>(i)) ++split.documents;
    split.saved = full[i].size();
    split.writer = std::make_unique<ShardWriter>(path, name, layout, record_.splits[i],
                                                 std::move(full[i]), background_);
    splits_.push_back(std::move(split));
  }
}

void DatasetWriter::write(const TextBatch& batch) {
  run_ = {static_cast<std::size_t>(record_.split), 0, 0, std::move(run_.ends)};
  run_.ends.clear();
  for (const auto& part : batch.parts) {
    if (part.first) {
      const std::size_t split = is_validation(record_.documents++, validation_share_) ? 1 : 0;
      ++splits_[split].documents;
      if (split != run_.split) {
        add(batch, run_);
        run_.split = split;
      }
      record_.split = static_cast<std::int64_t>(split);
    }
    run_.tokens += part.tokens;
    text_bytes_ += part.text_bytes;
    if (part.last) run_.ends.push_back(splits_[run_.split].writer->tokens() + run_.tokens);
  }
  add(batch, run_);
  record_.odd.add(batch.odd);
  record_.position = batch.behind;
  for (const auto& split : splits_)
    if (split.writer->has_full()) return save();
}

// Then starts the next run after it.
void DatasetWriter::add(const TextBatch& batch, Run& run) {
  const auto whole = layout_.token_bytes == 2 ? std::as_bytes(std::span(batch.narrow))
                                              : std::as_bytes(std::span(batch.wide));
  const auto first = static_cast<std::size_t>(run.first);
  const auto count = static_cast<std::size_t>(run.tokens);
  const auto bytes = static_cast<std::size_t>(layout_.token_bytes);
  const std::span<const std::uint8_t> mask(batch.mask);
  splits_[run.split].writer->add(whole.subspan(first * bytes, count * bytes),
                                 layout_.masked ? mask.subspan(first, count) : mask, run.ends);
  run.first += run.tokens;
  run.tokens = 0;
  run.ends.clear();
}

// Saves in the background, in this order: full shards, the content of open shards, the record of
// both.
void DatasetWriter::save() {
  background_.wait();
  full_.clear();
  std::vector<const OpenShard*> open;
  std::string lines;
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    auto& writer = *splits_[i].writer;
    record_.splits[i] = writer.state();
    for (auto& saved = splits_[i].saved; saved < writer.shards().size(); ++saved)
      lines += PackedShard{static_cast<std::int64_t>(i), writer.shards()[saved]}.line();
    for (auto& full : writer.take_full())
      full_.push_back(std::move(full));
    if (writer.open_shard() != nullptr) open.push_back(writer.open_shard());
  }
  background_.run([this, open = std::move(open), record = record_, lines = std::move(lines)] {
    for (const auto& full : full_)
      full->commit();
    for (const auto* shard : open)
      shard->sync();
    for (const auto& split : splits_)
      sync_directory(split.writer->directory());
    directory_.save(record, lines);
  });
}

std::vector<Manifest> DatasetWriter::finish(const Manifest& about) {
  background_.wait();
  full_.clear();
  std::vector<Manifest> manifests;
  for (auto& split : splits_)
    manifests.push_back(split.writer->finish(about));
  return manifests;
}

}  // namespace lockstep
