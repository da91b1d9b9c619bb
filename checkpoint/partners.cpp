#include "checkpoint/partners.h"

#include <algorithm>
#include <future>
#include <map>

#include "checkpoint/ranges.h"
#include "core/hash.h"
#include "core/json.h"
#include "core/progress.h"
#include "core/start_thread.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReceivedBytes = std::size_t{1} << 20;

}  // namespace

Partners::Partners(const AllRanks& ranks, const HostRanks& machine, Milliseconds patience)
    : rank_(ranks.rank()), patience_(patience) {
  std::map<int, Machine> by_leader;
  int rank = 0;
  for (const auto& said : ranks.exchanged(
           Json(Json::Array{machine.ranks.front(), machine.file_of(ranks.rank())}).dump())) {
    const Json place = Json::parse(said, str("the host of rank ", rank++));
    const auto leader = static_cast<int>(place.as_array().at(0).as_integer());
    auto& of_leader = by_leader[leader];
    of_leader.leader = leader;
    of_leader.files.push_back(place.as_array().at(1).as_string());
  }
  for (auto& [leader, of_leader] : by_leader) {
    if (leader == machine.ranks.front()) here_ = machines_.size();
    machines_.push_back(std::move(of_leader));
  }
  partner_ = partner_of(here_, machines_.size());
  while (partner_of(given_by_, machines_.size()) != here_)
    ++given_by_;
}

void Partners::copy(const AllRanks& ranks, const std::string& manifest, const fs::path& checkpoint,
                    FunctionRef<void()> acted) const {
  if (machines_.size() == 1) return;
  try {
    exchange(ranks, manifest, checkpoint, acted);
  } catch (const Error& error) {  // training can continue without the copy
    throw StorageError(str("no copy on another host: ", error.what()));
  }
}

void Partners::exchange(const AllRanks& ranks, const std::string& manifest,
                        const fs::path& checkpoint, FunctionRef<void()> acted) const {
  Socket listener;
  const auto said = ranks.act([&]() -> std::string {
    if (!leads()) return "";
    listener = listen_at("", 0);
    Json::Array addresses;
    for (const auto& address : ranks.world()->addresses())
      addresses.emplace_back(address);
    return Json(Json::Object{{"port", static_cast<std::int64_t>(listener.port())},
                             {"addresses", std::move(addresses)}})
        .dump();
  });
  Json::Array places;
  for (const auto& of_rank : said)
    if (!of_rank.empty()) places.push_back(Json::parse(of_rank, "the address of a host"));
  const Json agreed = Json::parse(
      ranks.told(Json(Json::Object{{"secret", ranks.is_first() ? Secret::draw().hex() : ""},
                                   {"places", std::move(places)}})
                     .dump()),
      "rank 0");
  const auto give_and_take = [&] {
    const auto secret = Secret::from_hex(agreed.at("secret").as_string());
    const Json& place = agreed.at("places").as_array().at(partner_);
    Membership to{.rank = rank_,
                  .ranks = ranks.size(),
                  .addresses = {},
                  .port = static_cast<std::uint16_t>(place.at("port").as_integer()),
                  .secret = secret,
                  .listener = machines_[partner_].leader};
    for (const auto& address : place.at("addresses").as_array())
      to.addresses.push_back(address.as_string());
    const auto parsed = CheckpointManifest::parse(manifest, "the manifest of rank 0");
    auto taken = start_task([&] { take(listener, secret, parsed, checkpoint); });
    try {
      give(to, parsed, checkpoint);
    } catch (const TransientError&) {
      taken.get();  // an error here is more likely the cause
      throw;
    }
    taken.get();
  };
  ranks.act_if(leads(), give_and_take, acted);
}

std::vector<std::size_t> Partners::files_of(const Machine& machine,
                                            const CheckpointManifest& manifest) {
  std::vector<std::size_t> files;
  for (std::size_t f = 0; f < manifest.files.size(); ++f)
    if (std::find(machine.files.begin(), machine.files.end(), manifest.files[f].name) !=
        machine.files.end())
      files.push_back(f);
  return files;
}

// Sends the bytes of the files one after the other. Both sides know the sizes.
void Partners::give(const Membership& to, const CheckpointManifest& manifest,
                    const fs::path& checkpoint) const {
  Socket socket = join(to, Channel::files, soon());
  for (const auto f : files_of(machines_[here_], manifest)) {
    const ReadFile file = open_checked(checkpoint, manifest.files[f]);
    PieceReader reader;
    reader.read(file, 0, file.size_bytes(), [&](auto piece, std::int64_t) {
      socket.send_all(piece, soon());
      made_progress();
    });
  }
}

void Partners::take(const Socket& listener, const Secret& secret,
                    const CheckpointManifest& manifest, const fs::path& checkpoint) const {
  Socket socket = std::move(
      await_ranks(listener, secret, Channel::files, {machines_[given_by_].leader}, soon()).front());
  const auto ranges = ranges_by_file(manifest);
  std::vector<std::byte> buffer(kReceivedBytes);
  for (const auto f : files_of(machines_[given_by_], manifest)) {
    const auto path = checkpoint / manifest.files[f].name;
    RangeWriter writer(path, path, RangeWriter::Way::direct, RangeWriter::Start::empty);
    for (const auto& range : ranges[f]) {
      Hasher hasher;
      for (std::int64_t done = 0; done < range.bytes;) {
        const auto piece = std::span(buffer).first(
            static_cast<std::size_t>(std::min<std::int64_t>(range.bytes - done, kReceivedBytes)));
        socket.receive_all(piece, soon());
        hasher.add(piece);
        writer.write(piece);
        done += std::ssize(piece);
      }
      if (hasher.hex() != range.hash)
        throw DataError(str(path.string(), ": at byte ", range.offset, ": ", range.what,
                            " arrived damaged from rank ", machines_[given_by_].leader));
    }
    writer.commit();
  }
}

}  // namespace lockstep
