#include "checkpoint/all_ranks.h"

#include "core/json.h"

namespace lockstep {

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
  } catch (const std::exception& error) {
    mine.set("failure", std::string(error.what()));
  }
  acted();
  const auto all = world_->gather(tag_, mine.dump());
  std::vector<std::string> said;
  Json first_error(Json::Object{});
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    try {
      const Json json = Json::parse(all[rank], str("rank ", rank));
      if (const Json* words = json.find("said")) {
        said.push_back(words->as_string());
      } else if (first_error.as_object().empty()) {
        const auto& [kind, error] = *json.as_object().begin();
        first_error.set(kind, str("rank ", rank, ": ", error.as_string()));
      }
    } catch (const std::exception& error) {  // all hear of it: they wait
      first_error.set("failure", std::string(error.what()));
    }
  const Json agreed = Json::parse(world_->broadcast(tag_, first_error.dump()), "rank 0");
  if (const Json* error = agreed.find("no_access")) throw AccessError(error->as_string());
  if (const Json* error = agreed.find("failure")) throw Error(error->as_string());
  if (const Json* error = agreed.find("refused")) throw ConfigError(error->as_string());
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

std::string AllRanks::told(const std::string& text) const {
  return world_ == nullptr ? text : world_->broadcast(tag_, text);
}

}  // namespace lockstep
