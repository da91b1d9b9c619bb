#include "checkpoint/range_transfer.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "checkpoint/ranges.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/start_thread.h"

namespace lockstep {
namespace {

constexpr std::size_t kPiece = std::size_t{128} << 10;  // fits a CPU cache
constexpr std::size_t kMostConnections = 4096;          // others wait
constexpr std::size_t kMostText = 4096;
constexpr Milliseconds kGreeting{5'000}, kPause{20};
constexpr std::uint64_t kBytesFollow = 0;

template <class Number>
std::span<const std::byte> bytes_of(const Number& number) {
  return std::as_bytes(std::span(&number, 1));
}

std::uint64_t receive_number(Socket& socket, Deadline deadline) {
  std::uint64_t number = 0;
  socket.receive_all(std::as_writable_bytes(std::span(&number, 1)), deadline);
  return number;
}

}  // namespace

RangeServer::RangeServer(const Secret& secret, std::filesystem::path checkpoint,
                         const CheckpointManifest& manifest)
    : secret_(secret),
      checkpoint_(std::move(checkpoint)),
      manifest_(manifest),
      listener_(listen_at("", 0)),
      thread_(start_thread([this] { accept(); })) {}

RangeServer::~RangeServer() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    for (auto& connection : connections_)
      connection.socket.shut();
  }
  listener_.shut();
  thread_.join();
  for (auto& connection : connections_)
    connection.thread.join();
}

void RangeServer::drop_ended() {
  std::erase_if(connections_, [](Connection& connection) {
    if (connection.ended) connection.thread.join();
    return connection.ended;
  });
}

void RangeServer::accept() {
  for (;;) {
    wait_for(listener_, false, Deadline::max());
    {
      const std::lock_guard lock(mutex_);
      if (leaving_) return;
      drop_ended();
      if (connections_.size() < kMostConnections && add_connection()) continue;
    }
    std::this_thread::sleep_for(kPause);
  }
}

// Returns false if no client waits, or if there is no descriptor or thread for it.
bool RangeServer::add_connection() {
  auto socket = accept_from(listener_);
  if (!socket) return false;
  auto& connection = connections_.emplace_back();
  connection.socket = std::move(*socket);
  try {
    connection.thread = start_thread([this, &connection] { serve(connection); });
    return true;
  } catch (const TransientError& error) {  // the other end tries again
    log_own_warning("a rank cannot read from the memory of this host: ", error.what());
    connections_.pop_back();
    return false;
  }
}

void RangeServer::serve(Connection& connection) const {
  try {
    const auto who = authenticate(connection.socket, secret_, Clock::now() + kGreeting);
    if (who.channel == Channel::files) answer(connection.socket);
  } catch (
      const Error&) {  // the other end reports a broken connection; unknown clients get no answer
  }
  const std::lock_guard lock(mutex_);
  connection.socket.shut();
  connection.ended = true;
}

// Sends wait without a deadline: a rank may read other ranges first. The destructor ends them.
void RangeServer::answer(Socket& socket) const {
  const auto count = receive_number(socket, Clock::now() + kGreeting);
  if (count > kMostRanges) throw DataError("too many ranges are requested");
  std::vector<FileRange> ranges;
  for (std::uint64_t i = 0; i < count; ++i) {  // grows with the bytes that arrive
    auto& range = ranges.emplace_back();
    socket.receive_all(std::as_writable_bytes(std::span(&range, 1)), Clock::now() + kGreeting);
  }
  for (const auto& range : ranges)
    send(socket, range);
  socket.finish_sending();
}

void RangeServer::send(Socket& socket, const FileRange& range) const {
  std::optional<ReadFile> file;
  try {
    const auto size = range.file < manifest_.files.size()
                          ? static_cast<std::uint64_t>(manifest_.files[range.file].bytes)
                          : 0;
    if (range.offset > size || range.bytes > size - range.offset)
      throw DataError("a range outside of the files is requested");
    file.emplace(open_checked(checkpoint_, manifest_.files[range.file]));
  } catch (const DataError& error) {
    const auto text = std::string_view(error.what()).substr(0, kMostText);
    socket.send_all(bytes_of(static_cast<std::uint64_t>(error.exit_code())), Deadline::max());
    socket.send_all(bytes_of(std::uint64_t{text.size()}), Deadline::max());
    socket.send_all(std::as_bytes(std::span(text)), Deadline::max());
    return;
  }
  socket.send_all(bytes_of(kBytesFollow), Deadline::max());
  if (range.is_whole != 0) {
    for (std::uint64_t done = 0; done < range.bytes;) {
      const auto count = std::min<std::uint64_t>(range.bytes - done, kPiece);
      socket.send_all(*file, static_cast<std::int64_t>(range.offset + done), count,
                      Deadline::max());
      done += count;
      made_progress();
    }
    return;
  }
  std::vector<std::byte> buffer(std::min<std::size_t>(range.bytes, kPiece));
  Hasher hasher;
  for (std::uint64_t done = 0; done < range.bytes;) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(range.bytes - done, kPiece));
    file->read(piece, static_cast<std::int64_t>(range.offset + done));
    hasher.add(piece);
    socket.send_all(piece, Deadline::max());
    done += piece.size();
    made_progress();
  }
  socket.send_all(as_bytes(hasher.hex()), Deadline::max());
}

RangeStream::RangeStream(const Membership& to, std::span<const FileRange> ranges,
                         Milliseconds patience)
    : patience_(patience),
      ranges_(ranges.begin(), ranges.end()),
      socket_(join(to, Channel::files, Clock::now() + patience)),
      buffer_(kPiece) {
  LOCKSTEP_CHECK(ranges_.size() <= kMostRanges, ranges_.size(), " ranges of one host");
  socket_.send_all(bytes_of(std::uint64_t{ranges_.size()}), Clock::now() + patience);
  socket_.send_all(std::as_bytes(std::span(ranges_)), Clock::now() + patience);
}

void RangeStream::next(std::span<std::byte> place,
                       FunctionRef<void(std::span<const std::byte>, std::int64_t)> use) {
  const auto& range = ranges_.at(next_++);
  LOCKSTEP_CHECK(place.empty() || place.size() == range.bytes, "a range of ", range.bytes,
                 " bytes for ", place.size());
  const auto soon = [&] { return Clock::now() + patience_; };
  if (const auto code = receive_number(socket_, soon()); code != kBytesFollow) {
    std::string text(std::min<std::uint64_t>(receive_number(socket_, soon()), kMostText), '\0');
    socket_.receive_all(std::as_writable_bytes(std::span(text)), soon());
    throw_as(static_cast<int>(code), text);
  }
  Hasher hasher;
  for (std::uint64_t done = 0; done < range.bytes;) {
    const auto count = std::min<std::uint64_t>(range.bytes - done, kPiece);
    const auto piece = place.empty() ? std::span(buffer_).first(count) : place.subspan(done, count);
    socket_.receive_all(piece, soon());
    if (range.is_whole == 0) hasher.add(piece);
    use(piece, static_cast<std::int64_t>(done));
    done += piece.size();
    made_progress();
  }
  if (range.is_whole != 0) return;
  std::array<std::byte, 32> hash;
  socket_.receive_all(hash, soon());
  if (hasher.hex() != as_text(hash)) throw DataError("a range arrived damaged");
}

}  // namespace lockstep
