// TensorBoardLog writes event files, which `tensorboard --logdir RUN` shows (docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "train/observe/append_only_file.h"
#include "train/observe/step_report.h"

namespace lockstep {

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78; not zlib's), and its masked form in
// TensorFlow's record format.
std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);

// Events as protocol buffers. A record is the length (u64), its masked CRC, the event, and its
// masked CRC.
using Scalar = std::pair<std::string_view, float>;  // tag, value
std::string version_event(double wall_time);        // first event of every file
std::string session_start_event(double wall_time, std::int64_t step);
std::string scalars_event(double wall_time, std::int64_t step, std::span<const Scalar> scalars);
std::string event_record(std::string_view event);

class TensorBoardLog {
 public:
  // Starts a new event file in `directory`. Readers drop events of earlier files after
  // `resumed_step`.
  TensorBoardLog(const std::filesystem::path& directory, std::int64_t resumed_step);

  void append(const StepReport& report);
  void sync() { file_->sync(); }
  bool is_named() const { return file_->is_named(); }  // see AppendOnlyFile

 private:
  std::optional<AppendOnlyFile> file_;
};

}  // namespace lockstep
