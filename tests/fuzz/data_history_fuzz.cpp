// Any data state of a checkpoint is rejected, or survives a round trip and describes each sample.
#include "data/history.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::data_history_fuzz {

Seeds seeds() {
  const std::string a =
      R"({"name": "a", "fingerprint": "fa", "seed": 1, "weight": 3, "counter": 0})";
  const std::string b =
      R"({"name": "b", "fingerprint": "fb", "seed": 2, "weight": 9007199254740992, "counter": 7})";
  return {R"({"seed": 42, "sequence_length": 8, "dataset": "d", "fingerprint": "fd"})",
          R"({"sequence_length": 8, "stretches": [{"first_sample": 0, "sources": [)" + a + "]}]}",
          R"({"stretches": [{"first_sample": 0, "length": 8, "sources": [)" + a + ", " + b +
              R"(]}, {"first_sample": 100, "length": 16, "sources": [)" + b + "]}]}"};
}

void check(std::string_view text) {
  const auto history = history_in(Json::parse(text, "input"));
  Json data;
  data.set("stretches", to_json(history));
  LOCKSTEP_CHECK(history_in(data) == history, "another history");
  const auto sample = history.back().first_sample + 1000;
  auto now = history.back();
  const auto carry = [&](const Stretch::Source& source, std::int64_t length) {
    return carried_over(source.counter, RowKind::windows, {1000, length}, {500, now.length});
  };
  LOCKSTEP_CHECK(continued(history, sample, now, carry, true).size() <= history.size() + 1,
                 "a change where there is none");
  now.length *= 2;
  const auto longer = continued(history, sample, now, carry, true);
  LOCKSTEP_CHECK(longer.size() == history.size() + 1 && longer.back().length == now.length,
                 "no stretch of another length");
}

const Target target("data_history", seeds, check);

}  // namespace lockstep::fuzz::data_history_fuzz
