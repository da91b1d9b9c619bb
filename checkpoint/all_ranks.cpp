#include "checkpoint/all_ranks.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/json.h"

namespace lockstep {
namespace {

// Largest message (see dist/job/control.h), and most bytes that ranks send to rank 0 before it
// receives them.
constexpr std::size_t kPieceBytes = std::size_t{8} << 20, kUnderWayBytes = std::size_t{64} << 20;
constexpr std::size_t kLeastPiece = std::size_t{4} << 10;
constexpr const char* kMore = "more";  // no answer: answers are JSON

std::string piece_of(const std::string& text, std::size_t number, std::size_t bytes) {
  return number * bytes < text.size() ? text.substr(number * bytes, bytes) : std::string();
}

// The size of the whole text, then its first piece.
std::string head_of(const std::string& text, std::size_t bytes) {
  return str(text.size(), ' ', piece_of(text, 0, bytes));
}

std::size_t take_head(std::string& piece) {
  const auto size = std::stoull(piece);
  piece.erase(0, piece.find(' ') + 1);
  return size;
}

// Error types that act() may throw, most derived first, because the exit code depends on the type.
struct Kind {
  std::string_view name;  // name in a message
  bool (*is)(const std::exception& error);
  void (*raise)(const std::string& what);
};

template <class Type>
constexpr Kind kind(std::string_view name) {
  return {name,
          [](const std::exception& error) { return dynamic_cast<const Type*>(&error) != nullptr; },
          [](const std::string& what) { throw Type(what); }};
}

constexpr std::string_view kTransient = "transient", kFailure = "failure";
constexpr std::array kKinds{kind<RefusedError>("refused"), kind<UnreachableError>("unreachable"),
                            kind<StorageError>("storage"), kind<AccessError>("no access"),
                            kind<DataError>("data"),       kind<ConfigError>("configuration"),
                            kind<UsageError>("usage"),     kind<TransientError>(kTransient),
                            kind<Error>(kFailure)};

const Kind& kind_of(const std::exception& error) {
  const auto* found =
      std::ranges::find_if(kKinds, [&](const Kind& kind) { return kind.is(error); });
  return found == kKinds.end() ? kKinds.back() : *found;
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

// Rank 0 gets the texts of all ranks, piece by piece, and sends one answer. Before it: kMore for
// each further piece.
std::string AllRanks::answered(const std::string& mine, const Answer& answer) const {
  const auto bytes = std::min(kPieceBytes, kUnderWayBytes / static_cast<std::size_t>(size()) + 1);
  auto all = world_->gather(tag_, head_of(mine, bytes));
  std::size_t most = 0;
  for (auto& text : all)
    most = std::max(most, take_head(text));
  for (std::size_t i = 1;; ++i) {
    const bool is_whole = i * bytes >= most;
    std::string said;
    if (is_first()) said = is_whole ? answer(all) : kMore;
    said = world_->broadcast(tag_, said);  // rank 0 has received the pieces of all
    if (said != kMore) return said;
    const auto more = world_->gather(tag_, piece_of(mine, i, bytes));
    for (std::size_t rank = 0; rank < more.size(); ++rank)
      all[rank] += more[rank];
  }
}

std::vector<std::string> AllRanks::exchanged(const std::string& mine) const {
  if (world_ == nullptr) return {mine};
  const auto bytes = std::max(kPieceBytes / static_cast<std::size_t>(size()), kLeastPiece) + 1;
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

namespace {

// Calls act(): {"said": its result}, or the error.
Json outcome_of(FunctionRef<std::string()> act) {
  Json outcome;
  try {
    outcome.set("said", act());
  } catch (const std::exception& error) {
    outcome.set(std::string(kind_of(error).name), std::string(error.what()));
  }
  return outcome;
}

// Throws the error that rank 0 sent; "{}": none.
void raise(const std::string& error) {
  const Json agreed = Json::parse(error, "rank 0");
  for (const auto& [name, what] : agreed.as_object())
    std::ranges::find(kKinds, name, &Kind::name)->raise(what.as_string());
}

// Returns the first error of the ranks' outcomes as JSON, and the results.
std::string first_error_of(const std::vector<std::string>& all, std::vector<std::string>& said) {
  Json first_error(Json::Object{});
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    try {
      const Json json = Json::parse(all[rank], str("rank ", rank));
      if (const Json* words = json.find("said")) {
        said.push_back(words->as_string());
      } else if (first_error.as_object().empty() || first_error.find(kTransient) != nullptr) {
        // A broken connection is a consequence of another rank's error.
        const auto& [kind, error] = *json.as_object().begin();
        if (kind != kTransient || first_error.as_object().empty())
          first_error = Json::Object{{kind, str("rank ", rank, ": ", error.as_string())}};
      }
    } catch (const std::exception& error) {  // sent to all ranks, because they wait
      first_error.set(std::string(kFailure), std::string(error.what()));
    }
  return first_error.dump();
}

}  // namespace

std::vector<std::string> AllRanks::act(FunctionRef<std::string()> act,
                                       FunctionRef<void()> acted) const {
  if (size() == 1) return {act()};
  const auto mine = outcome_of(act).dump();
  acted();
  std::vector<std::string> said;
  raise(answered(mine, [&](const auto& all) { return first_error_of(all, said); }));
  return said;
}

void AllRanks::act_first(FunctionRef<void()> act, FunctionRef<void()> acted) const {
  if (size() == 1) return act();
  std::string outcome;
  std::vector<std::string> said;
  if (is_first())
    outcome = first_error_of({outcome_of([&] {
                                act();
                                return std::string();
                              }).dump()},
                             said);
  acted();
  raise(world_->broadcast(tag_, outcome));
}

void AllRanks::act_if(bool mine, FunctionRef<void()> act, FunctionRef<void()> acted) const {
  const auto mine_alone = [&] {
    if (mine) act();
    return std::string();
  };
  this->act(mine_alone, acted);
}

}  // namespace lockstep
