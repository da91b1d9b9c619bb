#include "tests/sim/net.h"

namespace lockstep::sim {
namespace {

constexpr Micros kConnectTime = 5 * kSecond;  // without an answer
constexpr Micros kTurn = 10;                  // of a process that writes as fast as it can

}  // namespace

int Net::connect(Endpoint* client, int from, int to, int port) {
  const int id = static_cast<int>(connections_.size());
  auto& c = connections_.emplace_back();
  c.ends[0].owner = client;
  c.ends[0].host = from;
  c.ends[1].host = to;
  of_[client].push_back(id);
  const auto there = latency(from, to);
  c.ends[0].last = kernel_.now() + there;
  kernel_.after(there, [this, id, from, to, port] {
    auto& made = connections_[index(id)];
    const auto found = listeners_.find({to, port});
    const bool reaches = is_up(to) && !is_cut(from, to) && !is_cut(to, from);
    if (!reaches || found == listeners_.end()) {
      made.ends[1].open = false;
      kernel_.after(reaches ? latency(to, from) : kConnectTime, [this, id] {
        auto& end = connections_[index(id)].ends[0];
        if (!end.open) return;
        end.open = false;
        end.owner->closed(id);
      });
      return;
    }
    if (!made.ends[0].open && made.ends[0].way.empty()) {
      made.ends[1].open = false;
      return;
    }
    made.ends[1].owner = found->second;
    of_[found->second].push_back(id);
    found->second->accepted(id);
    pump(id, 0);
  });
  return id;
}

std::size_t Net::send(int connection, const Endpoint* from, std::span<const std::byte> bytes) {
  auto& c = connections_[index(connection)];
  const int side = side_of(c, from);
  auto& end = c.ends[side];
  if (!end.open) return bytes.size();
  const auto count = std::min(bytes.size(), kBufferBytes - std::min(end.way_bytes, kBufferBytes));
  if (count == 0) return 0;
  end.way_bytes += count;
  for (auto rest = bytes.first(count); !rest.empty();) {
    const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
    put(connection, side, {.bytes = {piece.begin(), piece.end()}});
    rest = rest.subspan(piece.size());
  }
  return count;
}

void Net::put(int connection, int side, Piece piece) {
  auto& c = connections_[index(connection)];
  auto& end = c.ends[side];
  end.last = std::max(end.last, kernel_.now() + latency(end.host, c.ends[1 - side].host));
  piece.due = end.last;
  end.way.push_back(std::move(piece));
  kernel_.at(end.last, [this, connection, side] { pump(connection, side); });
}

void Net::pump(int connection, int side) {
  auto& c = connections_[index(connection)];
  auto& from = c.ends[side];
  auto& to = c.ends[1 - side];
  if (to.owner == nullptr || is_cut(from.host, to.host)) return;
  bool any = false;
  while (!from.way.empty() && from.way.front().due <= kernel_.now()) {
    auto piece = std::move(from.way.front());
    from.way.pop_front();
    if (to.open) {
      to.read.push_back(std::move(piece));
      any = true;
    } else if (is_up(to.host) && from.open && !piece.end) {
      put(connection, 1 - side, {.end = true});  // its kernel resets the connection
    }
  }
  if (any) deliver(connection, 1 - side);
}

void Net::deliver(int connection, int side) {
  auto& c = connections_[index(connection)];
  auto& end = c.ends[side];
  auto& other = c.ends[1 - side];
  while (end.open && end.reading && !end.read.empty() && !paused_.contains(end.owner)) {
    const auto piece = std::move(end.read.front());
    end.read.pop_front();
    if (piece.end) {
      end.open = false;
      end.owner->closed(connection);
      return;
    }
    other.way_bytes -= piece.bytes.size();
    notify(connection, 1 - side, latency(end.host, other.host));
    end.owner->arrived(connection, piece.bytes);
  }
}

void Net::set_writing(int connection, const Endpoint* at, bool writing) {
  auto& c = connections_[index(connection)];
  auto& end = c.ends[side_of(c, at)];
  end.writing = writing;
  notify(connection, side_of(c, at), kTurn);
}

// Calls writable() again and again while it is wanted and there is room.
void Net::notify(int connection, int side, Micros pause) {
  auto& end = connections_[index(connection)].ends[side];
  if (!end.open || !end.writing || std::exchange(end.notified, true)) return;
  kernel_.after(pause, [this, connection, side] {
    auto& waiting = connections_[index(connection)].ends[side];
    waiting.notified = false;
    if (!waiting.open || !waiting.writing || paused_.contains(waiting.owner)) return;
    if (waiting.way_bytes >= kBufferBytes) return;
    waiting.owner->writable(connection);
    notify(connection, side, kTurn);
  });
}

void Net::set_reading(int connection, const Endpoint* at, bool reading) {
  auto& c = connections_[index(connection)];
  const int side = side_of(c, at);
  c.ends[side].reading = reading;
  if (reading) kernel_.after(1, [this, connection, side] { deliver(connection, side); });
}

void Net::close(int connection, const Endpoint* from) {
  auto& c = connections_[index(connection)];
  const int side = side_of(c, from);
  if (!std::exchange(c.ends[side].open, false)) return;
  c.ends[side].read.clear();
  put(connection, side, {.end = true});
}

void Net::set_paused(const Endpoint* endpoint, bool paused) {
  if (paused) {
    paused_.insert(endpoint);
    return;
  }
  paused_.erase(endpoint);
  const auto mine = of_[endpoint];
  for (const int id : mine) {
    const auto& c = connections_[index(id)];
    deliver(id, side_of(c, endpoint));
    notify(id, side_of(c, endpoint), kTurn);
  }
}

void Net::kill(const Endpoint* endpoint) {
  paused_.erase(endpoint);
  for (const int id : of_[endpoint])
    close(id, endpoint);
}

void Net::heal() {
  cuts_.clear();
  for (std::size_t id = 0; id < connections_.size(); ++id)
    for (const int side : {0, 1}) {
      const int connection = static_cast<int>(id);
      if (!connections_[id].ends[side].way.empty())
        kernel_.after(0, [this, connection, side] { pump(connection, side); });
    }
}

void Net::power_off(int host) {
  up_.at(index(host)) = false;
  for (auto& c : connections_)
    for (auto& end : c.ends)
      if (end.host == host && end.owner != nullptr) {
        end.open = false;
        end.way.clear();
        end.read.clear();
      }
}

}  // namespace lockstep::sim
