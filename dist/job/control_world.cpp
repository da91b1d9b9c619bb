#include "dist/job/control_world.h"

#include <algorithm>
#include <optional>
#include <unistd.h>
#include <utility>

#include "core/log.h"
#include "dist/job/control_server.h"
#include "dist/job/socket_world.h"

namespace lockstep {
namespace {

// Long, because rank 0 may be reading a large checkpoint. The heartbeat detects a dead rank
// earlier.
constexpr Milliseconds kExchangeTime{1'800'000};
constexpr Milliseconds kServerLeaveTime{10'000};
constexpr Milliseconds kMeetTime{600'000};  // some hosts may have to fetch an image first
constexpr std::size_t kPiecesBytes = std::size_t{8} << 20, kLeastPiece = std::size_t{4} << 10;

class ControlWorld final : public World {
 public:
  ControlWorld(Control& control, std::function<void(const std::string&, int)> on_abort)
      : control_(control), on_abort_(std::move(on_abort)) {}
  int rank() const override { return control_.rank(); }
  int size() const override { return control_.ranks(); }

  std::unique_ptr<Communicator> connect(const GroupConfig& group) override {
    LOCKSTEP_FAIL("the group '", group.name, "' of a world that carries no tensors");
  }
  std::vector<std::string> exchange(const std::string& mine) override {
    // Texts are sent in pieces, each with the size of the whole text. Rank 0 keeps the pieces of
    // all ranks in memory.
    const auto piece = std::max(kPiecesBytes / static_cast<std::size_t>(size()), kLeastPiece);
    std::vector<std::string> texts(static_cast<std::size_t>(size()));
    std::size_t most = 0, said = 0;
    do {
      BodyWriter writer;
      writer.number(std::uint64_t{mine.size()});
      writer.text(said < mine.size() ? std::string_view(mine).substr(said, piece) : "");
      const auto all = control_.all_gather("exchange", writer.take(), kExchangeTime);
      for (std::size_t r = 0; r < all.size(); ++r) {
        BodyReader reader(all[r]);
        most = std::max<std::size_t>(most, reader.number<std::uint64_t>());
        texts[r] += reader.text();
      }
      said += piece;
    } while (said < most);
    return texts;
  }
  void abort(const std::string& why, int exit_code) noexcept override { on_abort_(why, exit_code); }

 private:
  Control& control_;
  std::function<void(const std::string&, int)> on_abort_;
};

// ControlWorld and SocketWorld, with their control server and connection.
class AddressWorld final : public World {
 public:
  explicit AddressWorld(const Rendezvous& found) {
    if (found.rank == 0)
      server_.emplace(ControlServerOptions{
          .ranks = found.ranks, .secret = *found.secret, .port = found.port, .start = kMeetTime});
    auto addresses = found.other_addresses;
    addresses.insert(addresses.begin(), found.address);
    control_.emplace(Membership{.rank = found.rank,
                                .ranks = found.ranks,
                                .addresses = std::move(addresses),
                                .port = found.port,
                                .secret = *found.secret,
                                .start = kMeetTime});
    world_.emplace(*control_, [](const std::string& why, int exit_code) {
      report_to_agent({.error = why});
      log_line(LogLevel::error, why);  // the log has this rank's number in the mesh
      _exit(exit_code);
    });
    sockets_.emplace(*world_, SocketOptions{*found.secret, found.interfaces});
  }
  AddressWorld(const AddressWorld&) = delete;
  AddressWorld& operator=(const AddressWorld&) = delete;
  ~AddressWorld() override {
    control_.reset();
    if (server_) server_->wait_until_all_left(kServerLeaveTime);
  }
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  std::unique_ptr<Communicator> connect(const GroupConfig& group) override {
    return sockets_->connect(group);
  }
  std::vector<std::string> exchange(const std::string& mine) override {
    return world_->exchange(mine);
  }
  std::vector<std::string> addresses() const override { return sockets_->addresses(); }
  void abort(const std::string& why, int exit_code) noexcept override {
    world_->abort(why, exit_code);
  }

 private:
  std::optional<ControlServer> server_;
  std::optional<Control> control_;
  std::optional<ControlWorld> world_;
  std::optional<SocketWorld> sockets_;
};

}  // namespace

std::unique_ptr<World> meet_at_address(const Rendezvous& found) {
  return std::make_unique<AddressWorld>(found);
}

std::unique_ptr<World> make_control_world(
    Control& control, std::function<void(const std::string& why, int exit_code)> on_abort) {
  return std::make_unique<ControlWorld>(control, std::move(on_abort));
}

}  // namespace lockstep
