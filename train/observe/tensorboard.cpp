#include "train/observe/tensorboard.h"

#include <array>
#include <bit>
#include <cmath>
#include <unistd.h>
#include <vector>

#include "core/file.h"
#include "core/wall_clock.h"
#include "train/observe/step_metrics.h"

namespace lockstep {
namespace {

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
    table[i] = crc;
  }
  return table;
}();

template <class Word>
void put(std::string& out, Word word) {  // little-endian
  for (std::size_t i = 0; i < sizeof word; ++i)
    out += static_cast<char>(word >> (8 * i));
}

// Protocol buffer fields: a key is field number * 8 + wire type.
enum Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<std::uint64_t>(field * 8 + wire));
}

void put_bytes(std::string& out, int field, std::string_view value) {
  put_key(out, field, Wire::bytes);
  put_varint(out, value.size());
  out += value;
}

// Event: 1 double wall_time, 2 int64 step
std::string event_head(double wall_time) {
  std::string event;
  put_key(event, 1, Wire::fixed64);
  put(event, std::bit_cast<std::uint64_t>(wall_time));
  return event;
}

std::string event_head(double wall_time, std::int64_t step) {
  auto event = event_head(wall_time);
  put_key(event, 2, Wire::varint);
  put_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

std::string host() {
  std::array<char, 256> text{};
  return gethostname(text.data(), text.size() - 1) == 0 ? text.data() : "localhost";
}

// Name events.out.tfevents.UNIX.HOST.PID, with a number appended if that file exists.
std::filesystem::path file_name(const std::filesystem::path& directory) {
  const auto seconds = static_cast<std::int64_t>(seconds_since_1970());
  auto path = directory / str("events.out.tfevents.", seconds, ".", host(), ".", getpid());
  const auto base = path.string();
  for (int i = 1; path_exists(path); ++i)
    path = str(base, ".", i);
  return path;
}

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  std::uint32_t crc = ~0u;
  for (const char c : data)
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view data) {
  return std::rotr(crc32c(data), 15) + 0xa282ead8u;
}

std::string version_event(double time) {
  auto event = event_head(time);
  put_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string session_start_event(double time, std::int64_t step) {
  auto event = event_head(time, step);
  put_bytes(event, 7, "\x08\x01");  // SessionLog: 1 status = START
  return event;
}

std::string scalars_event(double time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, 1, tag);
    put_key(value, 2, Wire::fixed32);
    put(value, std::bit_cast<std::uint32_t>(number));
    put_bytes(summary, 1, value);
  }
  auto event = event_head(time, step);
  put_bytes(event, 5, summary);
  return event;
}

std::string event_record(std::string_view event) {
  std::string record;
  put(record, std::uint64_t{event.size()});
  put(record, masked_crc32c(record));
  record += event;
  put(record, masked_crc32c(event));
  return record;
}

TensorBoardLog::TensorBoardLog(const std::filesystem::path& directory, std::int64_t resumed_step) {
  file_.emplace(file_name(directory), AppendOnlyFile::Mode::create_new);
  // START drops events from its step on, so it names the next step. Readers ignore the first START,
  // so a new run needs one too.
  file_->append(event_record(version_event(seconds_since_1970())) +
                event_record(session_start_event(seconds_since_1970(), resumed_step + 1)));
}

void TensorBoardLog::append(const StepReport& r) {
  std::vector<Scalar> scalars;
  const auto add = [&](std::string_view tag, double value) {
    if (!std::isnan(value)) scalars.emplace_back(tag, static_cast<float>(value));
  };
#define LOCKSTEP_ADD(member, value, tag, gauge, help) \
  if ((tag)[0] != '\0') add(tag, static_cast<double>(value));
  LOCKSTEP_STEP_METRICS(LOCKSTEP_ADD)
#undef LOCKSTEP_ADD
  if (r.gpu) {
    add("gpu/clock_mhz", r.gpu->clock_mhz);
    add("gpu/power_watts", r.gpu->power_watts);
    add("gpu/temperature_celsius", r.gpu->temperature_celsius);
  }
  if (r.validation_loss) add("validation/loss", *r.validation_loss);
  file_->append(event_record(scalars_event(seconds_since_1970(), r.step, scalars)));
}

}  // namespace lockstep
