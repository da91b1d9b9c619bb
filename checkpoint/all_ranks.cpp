#include "checkpoint/all_ranks.h"

#include <algorithm>

#include "core/json.h"

namespace lockstep {
namespace {

// Of a message: see dist/control.h. And of what many say to rank 0 before it has heard them.
constexpr std::size_t kPieceBytes = std::size_t{8} << 20, kUnderWayBytes = std::size_t{64} << 20;

std::string piece_of(const std::string& text, std::size_t number, std::size_t bytes) {
  return number * bytes < text.size() ? text.substr(number * bytes, bytes) : std::string();
}

// The first piece, behind the size of all.
std::string head_of(const std::string& text, std::size_t bytes) {
  return str(text.size(), ' ', piece_of(text, 0, bytes));
}

std::size_t take_head(std::string& piece) {
  const auto size = std::stoull(piece);
  piece.erase(0, piece.find(' ') + 1);
  return size;
}

}  // namespace

std::string AllRanks::told(const std::string& text) const {
  if (world_ == nullptr) return text;
  auto all = world_->broadcast(tag_, head_of(text, kPieceBytes));
  const auto size = take_head(all);
  for (std::size_t i = 1; all.size() < size; ++i)
    all += world_->broadcast(tag_, piece_of(text, i, kPieceBytes));
  return all;
}

std::vector<std::string> AllRanks::gathered(const std::string& mine) const {
  const auto bytes = std::min(kPieceBytes, kUnderWayBytes / static_cast<std::size_t>(size()) + 1);
  auto all = world_->gather(tag_, head_of(mine, bytes));
  std::size_t most = 0;
  for (auto& text : all)
    most = std::max(most, take_head(text));
  for (std::size_t i = 1;; ++i) {
    most = std::stoull(world_->broadcast(tag_, std::to_string(most)));  // it has heard them
    if (i * bytes >= most) return all;
    const auto more = world_->gather(tag_, piece_of(mine, i, bytes));
    for (std::size_t rank = 0; rank < more.size(); ++rank)
      all[rank] += more[rank];
  }
}

std::vector<std::string> AllRanks::exchanged(const std::string& mine) const {
  if (world_ == nullptr) return {mine};
  const auto bytes = kPieceBytes / static_cast<std::size_t>(size()) + 1;
  auto all = world_->exchange(head_of(mine, bytes));
  std::size_t most = 0;
  for (auto& text : all)
    most = std::max(most, take_head(text));
  for (std::size_t i = 1; i * bytes < most; ++i) {
    const auto more = world_->exchange(piece_of(mine, i, bytes));
    for (std::size_t rank = 0; rank < more.size(); ++rank)
      all[rank] += more[rank];
  }
  return all;
}

std::vector<std::string> AllRanks::act(FunctionRef<std::string()> act,
                                       FunctionRef<void()> acted) const {
  if (world_ == nullptr || world_->size() == 1) return {act()};
  Json mine;
  try {
    mine.set("said", act());
  } catch (const AccessError& error) {
    mine.set("no_access", std::string(error.what()));
  } catch (const DataError& error) {
    mine.set("error", std::string(error.what()));
  } catch (const ConfigError& error) {
    mine.set("refused", std::string(error.what()));
  } catch (const TransientError& error) {
    mine.set("transient", std::string(error.what()));
  } catch (const std::exception& error) {
    mine.set("failure", std::string(error.what()));
  }
  acted();
  const auto all = gathered(mine.dump());
  std::vector<std::string> said;
  Json first_error(Json::Object{});
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    try {
      const Json json = Json::parse(all[rank], str("rank ", rank));
      if (const Json* words = json.find("said")) {
        said.push_back(words->as_string());
      } else if (first_error.as_object().empty() || first_error.find("transient") != nullptr) {
        // A connection that broke tells of what befell another rank.
        const auto& [kind, error] = *json.as_object().begin();
        if (kind != "transient" || first_error.as_object().empty())
          first_error = Json::Object{{kind, str("rank ", rank, ": ", error.as_string())}};
      }
    } catch (const std::exception& error) {  // all hear of it: they wait
      first_error.set("failure", std::string(error.what()));
    }
  const Json agreed = Json::parse(world_->broadcast(tag_, first_error.dump()), "rank 0");
  if (const Json* error = agreed.find("no_access")) throw AccessError(error->as_string());
  if (const Json* error = agreed.find("failure")) throw Error(error->as_string());
  if (const Json* error = agreed.find("refused")) throw ConfigError(error->as_string());
  if (const Json* error = agreed.find("transient")) throw TransientError(error->as_string());
  if (const Json* error = agreed.find("error")) throw DataError(error->as_string());
  return said;
}

void AllRanks::act_if(bool mine, FunctionRef<void()> act, FunctionRef<void()> acted) const {
  const auto mine_alone = [&] {
    if (mine) act();
    return std::string();
  };
  this->act(mine_alone, acted);
}

}  // namespace lockstep
