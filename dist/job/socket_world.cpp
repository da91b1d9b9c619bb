#include "dist/job/socket_world.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <poll.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/system/interfaces.h"
#include "core/system/machine.h"
#include "dist/host_communicator.h"
#include "dist/job/handshake.h"
#include "dist/job/link.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSumBytes = 128 << 10;

// Bytes of a ring, so that a rank of a large group shares no more memory with all others than one
// of a small group. A rank writes some steps ahead while the other one sums.
std::size_t ring_bytes_of(const GroupConfig& group) {
  constexpr std::size_t kAll = 2 << 20, kLeast = 64 << 10;
  if (group.carries == Carries::numbers) return kLeast;
  return std::max(kLeast, std::bit_floor(kAll / group.ranks.size()));
}

// Identifies the processes that reach each other by Unix sockets; empty: unknown.
std::string neighbourhood() {
  std::error_code error;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", error);
  return error ? "" : machine_id() + " " + network.string();
}

// Place holds what a rank tells the others of its group.
struct Place {
  std::string group{};          // its name
  std::string neighbourhood{};  // ranks with the same one share memory; empty: with none
  std::string local{};          // address for these
  Peer peer{};
  std::uint16_t port = 0;  // for all others, at `addresses`
  std::vector<std::string> addresses{};

  std::string encode() const {
    BodyWriter writer;
    writer.text(group)
        .text(neighbourhood)
        .text(local)
        .text(peer.host)
        .number(peer.pid)
        .number(port);
    for (const auto& address : addresses)
      writer.text(address);
    return as_text(writer.take());
  }
  static Place decode(const std::string& text) {
    const auto bytes = as_bytes(text);
    BodyReader reader(bytes);
    Place place;
    place.group = reader.text();
    place.neighbourhood = reader.text();
    place.local = reader.text();
    place.peer.host = reader.text();
    place.peer.pid = reader.number<std::int32_t>();
    place.port = reader.number<std::uint16_t>();
    while (!reader.at_end())
      place.addresses.push_back(reader.text());
    return place;
  }
  bool shares_memory_with(const Place& other) const {
    return !neighbourhood.empty() && neighbourhood == other.neighbourhood;
  }
};

class SocketCommunicator final : public HostCommunicator {
 public:
  // links [size], one to each other rank      peers [size]
  SocketCommunicator(const GroupConfig& group, int rank, std::vector<std::unique_ptr<Link>> links,
                     std::vector<Peer> peers)
      : HostCommunicator(group.name, rank, static_cast<int>(group.ranks.size()), kSumBytes),
        links_(std::move(links)),
        peers_(std::move(peers)),
        launched_ranks_(group.ranks) {}

 private:
  void do_broadcast(Tensor inout, int root, Stream& stream) override {
    stream.enqueue([this, inout, root](Stream&) {
      if (rank() != root) start_receive(Lane::parts, inout.data, inout.bytes(), root);
      for (int i = 1; i < size() && rank() == root; ++i)
        start_send(Lane::parts, inout.data, inout.bytes(), (root + i) % size());
      finish(Lane::parts);
    });
  }

  void do_barrier(Stream& stream) override {
    stream.enqueue([this](Stream&) {
      for (int i = 1; i < size(); ++i) {
        start_send(Lane::parts, nullptr, 0, (rank() + i) % size());
        start_receive(Lane::parts, nullptr, 0, (rank() + i) % size());
      }
      finish(Lane::parts);
    });
  }

  void start_send(Lane lane, const std::byte* data, std::int64_t bytes, int to) override {
    link(to).send(of(lane), {data, static_cast<std::size_t>(bytes)});
  }
  void start_receive(Lane lane, std::byte* data, std::int64_t bytes, int from) override {
    link(from).receive(of(lane), {data, static_cast<std::size_t>(bytes)});
  }

  void finish(Lane lane) override {
    wait_until([&](const Link& link) { return link.is_idle(of(lane)); });
  }
  void finish_receives(Lane lane) override {
    wait_until([&](const Link& link) { return link.has_received(of(lane)); });
  }

  // Waits until done(link) is true for each link. Ranks may share a CPU core: a rank that waits
  // yields it at once, and soon sleeps.
  template <class Done>
  void wait_until(const Done& done) {
    constexpr auto kSpin = std::chrono::microseconds(100);
    for (auto moved_at = Clock::now();;) {
      bool moved = false, all_done = true;
      for (int i = 1; i < size(); ++i) {
        const int other = (rank() + i) % size();
        moved |= progress(other);
        all_done &= done(link(other));
      }
      if (all_done) return;
      const auto now = Clock::now();
      if (moved)
        moved_at = now;
      else if (now - moved_at < kSpin)
        std::this_thread::yield();
      else
        sleep();
    }
  }

  void sleep() {
    std::vector<int> waits_for;
    std::vector<pollfd> polled;
    for (int r = 0; r < size(); ++r) {
      if (r == rank() || link(r).is_idle()) continue;
      waits_for.push_back(r);
      polled.push_back(link(r).announce_sleep());
    }
    bool moved = false;
    for (const int r : waits_for)
      moved |= progress(r);
    if (!moved && poll(polled.data(), polled.size(), /*timeout=*/-1) < 0 && errno != EINTR)
      throw TransientError(str("cannot wait for other ranks: ", reason(errno)));
    for (std::size_t i = 0; i < polled.size(); ++i)
      link(waits_for[i]).wake_up(polled[i]);
  }

  bool progress(int other) {
    try {
      return link(other).progress();
    } catch (const TransientError& error) {
      throw TransientError(str(connection_to(other), " is lost: ", error.what()));
    } catch (const DataError& error) {
      throw DataError(str(connection_to(other), " is faulty: ", error.what()));
    }
  }

  std::string connection_to(int other) const {
    const auto at = static_cast<std::size_t>(other);
    const auto& numbers = ranks().empty() ? launched_ranks_ : ranks();
    return str("the connection of the group '", name(), "' to rank ", numbers[at], " (host ",
               peers_[at].host, ", pid ", peers_[at].pid, ")");
  }

  Link& link(int other) { return *links_[static_cast<std::size_t>(other)]; }
  static Link::Lane of(Lane lane) { return lane == Lane::parts ? Link::parts : Link::messages; }

  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Peer> peers_;
  std::vector<int> launched_ranks_;
};

// Connector connects this rank to the other ranks of a group. It listens during its lifetime.
class Connector {
 public:
  Connector(const World& world, const SocketOptions& options, const GroupConfig& group)
      : options_(options),
        group_(group),
        rank_(world.rank()),
        ranks_(world.size()),
        ring_bytes_(ring_bytes_of(group)),
        listener_(listen_at("", 0)) {
    place_.group = group.name;
    place_.peer = {host_name(), static_cast<std::int32_t>(getpid())};
    place_.port = listener_.port();
    place_.addresses = local_addresses(options.interfaces);
    if (options.shares_memory) place_.neighbourhood = neighbourhood();
    if (place_.neighbourhood.empty()) return;
    place_.local = "unix:lockstep-" + Secret::draw().hex();
    local_listener_ = listen_at(place_.local, 0);
  }

  const Place& place() const { return place_; }

  //   places  of the group's ranks, in its order
  std::vector<std::unique_ptr<Link>> connect(const std::vector<Place>& places) const {
    const auto deadline = Clock::now() + options_.start;
    std::vector<std::unique_ptr<Link>> links(places.size());
    // Ranks before this one in the group are joined in its order, ranks behind it are awaited. So
    // the first rank that still waits is never waited for.
    std::vector<std::size_t> local, remote;
    bool is_behind = false;
    for (std::size_t r = 0; r < places.size(); ++r) {
      const bool shares = place_.shares_memory_with(places[r]);
      if (group_.ranks[r] == rank_)
        is_behind = true;
      else if (is_behind)
        (shares ? local : remote).push_back(r);
      else
        links[r] = join_rank(r, places[r], deadline);
    }
    await(local, local_listener_, deadline, links);
    await(remote, listener_, deadline, links);
    return links;
  }

 private:
  std::unique_ptr<Link> join_rank(std::size_t other, const Place& place, Deadline deadline) const {
    const bool shares = place_.shares_memory_with(place);
    auto socket = join({.rank = rank_,
                        .ranks = ranks_,
                        .addresses = shares ? std::vector{place.local} : place.addresses,
                        .port = place.port,
                        .secret = options_.secret,
                        .listener = group_.ranks[other]},
                       Channel::tensors, deadline);
    if (!shares) return std::make_unique<Link>(std::move(socket));
    const auto memory = receive_descriptor(socket, deadline);
    return std::make_unique<Link>(std::move(socket),
                                  std::make_unique<SharedRings>(memory, ring_bytes_, 1));
  }

  void await(const std::vector<std::size_t>& others, const Socket& listener, Deadline deadline,
             std::vector<std::unique_ptr<Link>>& links) const {
    std::vector<int> ranks;
    for (const auto r : others)
      ranks.push_back(group_.ranks[r]);
    auto sockets = await_ranks(listener, options_.secret, Channel::tensors, ranks, deadline);
    for (std::size_t i = 0; i < others.size(); ++i) {
      std::unique_ptr<SharedRings> rings;
      if (&listener == &local_listener_) {
        const auto memory = SharedRings::create(ring_bytes_);
        send_descriptor(sockets[i], memory);
        rings = std::make_unique<SharedRings>(memory, ring_bytes_, 0);
      }
      links[others[i]] = std::make_unique<Link>(std::move(sockets[i]), std::move(rings));
    }
  }

  const SocketOptions& options_;
  const GroupConfig& group_;
  int rank_, ranks_;
  std::size_t ring_bytes_;
  Socket listener_, local_listener_;
  Place place_;
};

}  // namespace

SocketWorld::SocketWorld(World& under, SocketOptions options)
    : WorldOver(under), options_(std::move(options)) {}

std::vector<std::string> SocketWorld::addresses() const {
  return local_addresses(options_.interfaces);
}

// Every rank of the world takes part in the exchange, so all connections that arrive before the
// next one belong to this group.
std::unique_ptr<Communicator> SocketWorld::connect(const GroupConfig& group) {
  const auto& ranks = group.ranks;
  if (ranks.size() == 1) {
    under_.exchange("");
    return std::make_unique<LoneCommunicator>(group.name, 0, 1);
  }
  const Connector connector(*this, options_, group);
  const auto said = under_.exchange(connector.place().encode());
  std::vector<Place> places;
  std::vector<Peer> peers;
  for (const int rank : ranks) {
    places.push_back(Place::decode(said.at(static_cast<std::size_t>(rank))));
    peers.push_back(places.back().peer);
    LOCKSTEP_CHECK(places.back().group == group.name, "rank ", rank, " connects the group '",
                   places.back().group, "', rank ", this->rank(), " '", group.name, "'");
  }
  const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
  return std::make_unique<SocketCommunicator>(group, static_cast<int>(place),
                                              connector.connect(places), std::move(peers));
}

}  // namespace lockstep
