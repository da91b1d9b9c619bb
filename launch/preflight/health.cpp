#include "launch/preflight/health.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/units.h"

namespace lockstep {
namespace {

using Unit = Finding::Unit;
constexpr const char* kFormat = "lockstep preflight 2";
constexpr double kMost = 1e30;  // upper limit of any value
constexpr std::array kUnits{"flops", "bytes_per_second", "share", "seconds", "count"};

Unit unit_of(const std::string& text) {
  for (std::size_t i = 0; i < kUnits.size(); ++i)
    if (text == kUnits[i]) return static_cast<Unit>(i);
  throw DataError(str("unknown unit \"", text, "\" in a preflight finding"));
}

double number_or_none(const Json& object, const char* key) {
  const Json& json = object.at(key);
  return json.is_null() ? Finding::kNone : json.as_double();
}

// The finding of a rank for one check.
struct Found {
  std::size_t rank;
  const Who* who;
  const Finding* finding;
  const std::string& whose() const { return finding->whose.empty() ? who->words : finding->whose; }
  bool is_of_all() const {
    return !finding->whose.empty() && !finding->whose.starts_with(who->words);
  }
  const std::string& key() const {
    if (!finding->key.empty()) return finding->key;
    return finding->whose.empty() ? who->key : finding->whose;
  }
};

// The name of a check for readers. "product M x N x K type" is a key of preflight.json.
std::string check_in_words(const std::string& check) {
  constexpr std::string_view kKey = "product ";
  return check.starts_with(kKey) ? str("matmul ", check.substr(kKey.size())) : check;
}

// Groups findings by check, in the order of the first rank that has each check.
std::vector<std::vector<Found>> by_check(const std::vector<std::vector<Finding>>& by_rank,
                                         const std::vector<Who>& who) {
  std::vector<std::vector<Found>> all;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    for (const Finding& one : by_rank[rank]) {
      const auto at = std::ranges::find_if(
          all, [&](const auto& found) { return found.front().finding->check == one.check; });
      auto& found = at == all.end() ? all.emplace_back() : *at;
      found.push_back({rank, &who[rank], &one});
    }
  return all;
}

// The measured values, best first.
std::vector<double> ranked(const std::vector<Found>& found) {
  std::vector<double> values;
  for (const Found& one : found)
    if (!std::isnan(one.finding->value)) values.push_back(one.finding->value);
  const auto unit = found.front().finding->unit;
  std::ranges::sort(values, [&](double a, double b) { return is_worse(b, a, unit); });
  return values;
}

std::string in_percent(double share) {
  return str(std::lround(100 * share), " %");
}

// "48 % less than the 118 GFLOP/s of its peers".
std::string compared(double value, double with, Unit unit, const char* whose) {
  const auto by = with == 0 ? std::string() : in_percent(std::abs(value / with - 1)) + " ";
  return str(by, value < with ? "less" : "more", " than the ", in_words(with, unit), " ", whose);
}

// The worst value within the tolerance of a finding. It is unknown if there is no reference.
double worst_beside(double reference, const Finding& f) {
  if (f.tolerance <= 0) return Finding::kNone;
  const bool more_is_better = is_worse(0, 1, f.unit);
  return reference * (more_is_better ? 1 - f.tolerance : 1 + f.tolerance);
}

// The worst value that is no fault. Comparisons with an unknown value are false.
double worst_allowed(const Finding& f, double peers, double best) {
  double worst = f.limit;
  for (const double bound : {worst_beside(peers, f), worst_beside(best, f)})
    if (std::isnan(worst) || is_worse(worst, bound, f.unit)) worst = bound;
  return worst;
}

double best_of(const Baseline::ByConfiguration* known, const Finding& f) {
  if (known == nullptr) return Finding::kNone;
  const auto value = known->find(f.of);
  return value == known->end() ? Finding::kNone : value->second;
}

// The fault of a finding, or "".
std::string wrong_with(const Finding& f, double peers, double best) {
  if (!f.failure.empty()) return str("not measured: ", f.failure);
  if (std::isnan(f.value)) return "";
  if (is_worse(f.value, f.limit, f.unit))
    return str(in_words(f.value, f.unit), f.detail.empty() ? "" : str(" (", f.detail, ")"),
               ", expected ", is_worse(0, 1, f.unit) ? "at least " : "at most ",
               in_words(f.limit, f.unit));
  if (is_worse(f.value, worst_beside(peers, f), f.unit))
    return str(in_words(f.value, f.unit), ", ", compared(f.value, peers, f.unit, "of its peers"));
  if (is_worse(f.value, worst_beside(best, f), f.unit))
    return str(in_words(f.value, f.unit), ", ",
               compared(f.value, best, f.unit, "of its best earlier value"));
  return "";
}

void add(HealthVerdict& verdict, const std::string& whose, HealthVerdict::Result result) {
  if (!result.fault.empty())
    verdict.faults.push_back(
        {whose, str(result.check, ": ", result.fault), result.is_wrong_configuration});
  verdict.results.push_back(std::move(result));
}

// Reports the ranks whose bits differ from the majority; without a majority, all ranks.
void judge_bits(const std::vector<Found>& found, HealthVerdict& verdict, bool& is_well) {
  std::map<std::string, int> ranks_of;
  for (const Found& one : found)
    if (!one.finding->bits.empty()) ++ranks_of[one.finding->bits];
  if (ranks_of.size() < 2) return;
  is_well = false;
  int most = 0, alike = 0;  // size of the largest group of equal bits, and number of such groups
  for (const auto& [bits, ranks] : ranks_of)
    most = std::max(most, ranks);
  for (const auto& [bits, ranks] : ranks_of)
    alike += ranks == most ? 1 : 0;
  for (const Found& one : found)
    if (alike > 1 || ranks_of[one.finding->bits] < most)
      add(verdict, one.whose(),
          {.rank = one.rank,
           .check = check_in_words(one.finding->check),
           .fault = str("result differs from ",
                        alike > 1 ? "other ranks; memory, CPU or GPU of one of them is faulty"
                                  : "most ranks; its memory, CPU or GPU is faulty")});
}

// Reports ranks without a finding for a check that every rank makes.
void judge_missing(const std::vector<Found>& found, const std::vector<Who>& who,
                   HealthVerdict& verdict, bool& is_well) {
  if (std::ranges::any_of(found, [](const Found& one) { return !one.finding->whose.empty(); }))
    return;
  for (const Who& one : who) {
    if (std::ranges::any_of(found, [&](const Found& f) { return f.who == &one; })) continue;
    is_well = false;
    add(verdict, one.words,
        {.rank = static_cast<std::size_t>(&one - who.data()),
         .check = check_in_words(found.front().finding->check),
         .fault = "measured only on other ranks"});
  }
}

}  // namespace

const char* name(Unit unit) {
  return kUnits[static_cast<std::size_t>(unit)];
}

Json to_json(const Finding& f) {
  return Json::Object{
      {"check", f.check},         {"unit", name(f.unit)},
      {"value", f.value},         {"limit", f.limit},
      {"tolerance", f.tolerance}, {"bits", f.bits},
      {"detail", f.detail},       {"of", f.of},
      {"whose", f.whose},         {"key", f.key},
      {"failure", f.failure},     {"is_wrong_configuration", f.is_wrong_configuration}};
}

Finding finding(const Json& json) {
  return {.check = text_at(json, "check"),
          .unit = unit_of(text_at(json, "unit")),
          .value = number_or_none(json, "value"),
          .limit = number_or_none(json, "limit"),
          .tolerance = json.at("tolerance").as_double(),
          .bits = text_at(json, "bits"),
          .detail = text_at(json, "detail"),
          .of = text_at(json, "of"),
          .whose = text_at(json, "whose"),
          .key = text_at(json, "key"),
          .failure = text_at(json, "failure"),
          .is_wrong_configuration = json.at("is_wrong_configuration").as_bool()};
}

std::string in_words(double value, Unit unit) {
  switch (unit) {
    case Unit::flops: {  // "118G"
      const auto text = human_count(value);
      const auto unit_at = std::min(text.find_first_not_of("0123456789."), text.size());
      return str(text.substr(0, unit_at), " ", text.substr(unit_at), "FLOP/s");
    }
    case Unit::bytes_per_second: return str(human_bytes(value), "/s");
    case Unit::share: return in_percent(value);
    case Unit::seconds:
      return value < 1e-3 ? str(std::lround(1e6 * value), " us") : human_seconds(value);
    case Unit::count: return str(std::llround(value));
  }
  return "?";
}

bool is_worse(double value, double than, Unit unit) {
  return unit == Unit::seconds || unit == Unit::count ? value > than : value < than;
}

void Baseline::keep(const Finding& f, const std::string& key) {
  const auto [best, is_first] = values_[f.check][key].emplace(f.of, f.value);
  if (!is_first && is_worse(best->second, f.value, f.unit)) best->second = f.value;
}

const Baseline::ByConfiguration* Baseline::find(const std::string& check,
                                                const std::string& key) const {
  const auto found = values_.find(check);
  if (found == values_.end()) return nullptr;
  const auto values = found->second.find(key);
  return values == found->second.end() ? nullptr : &values->second;
}

Baseline Baseline::parse(const Json& json) {
  if (const auto& format = text_at(json, "format"); format != kFormat)
    throw DataError(str("\"format\" is \"", format, "\", expected \"", kFormat,
                        "\"; without the file nothing is compared with before"));
  const auto figure = [](const Json& value) {
    const double number = value.as_double();
    if (!(number > 0 && number < kMost))
      throw DataError(str("expected a number above 0 and below ", kMost, ", found ", number));
    return number;
  };
  Baseline baseline;
  for (const auto& [check, by_key] : json.at("checks").as_object())
    for (const auto& [key, values] : by_key.as_object())
      for (const auto& [of, value] : values.as_object())
        baseline.values_[check][key][of] =
            in_context([&, &one = value] { return figure(one); }, check, ": ", key, ": ", of);
  return baseline;
}

Json Baseline::to_json() const {
  Json checks = Json::Object{};
  for (const auto& [check, by_key] : values_) {
    Json keys = Json::Object{};
    for (const auto& [key, values] : by_key) {
      Json all = Json::Object{};
      for (const auto& [of, value] : values)
        all.set(of, value);
      keys.set(key, all);
    }
    checks.set(check, keys);
  }
  return Json::Object{{"format", kFormat}, {"checks", checks}};
}

int HealthVerdict::exit_code() const {
  if (faults.empty()) return 0;
  const bool is_configuration = std::ranges::any_of(faults, &Fault::is_wrong_configuration);
  return is_configuration ? ConfigError("").exit_code() : TransientError("").exit_code();
}

HealthVerdict judge(const std::vector<std::vector<Finding>>& by_rank, const std::vector<Who>& who,
                    const Baseline& before) {
  HealthVerdict verdict;
  for (const auto& found : by_check(by_rank, who)) {
    const Finding& first = *found.front().finding;
    const auto values = ranked(found);
    HealthVerdict::Row row{.check = check_in_words(first.check), .unit = first.unit};
    row.ranks = static_cast<int>(values.size());
    if (!values.empty()) row.median = values[(values.size() - 1) / 2];
    for (const Found& one : found) {
      const Finding& f = *one.finding;
      const auto* known = before.find(f.check, one.key());
      const double best = best_of(known, f);
      if (!values.empty() && f.value == values.back()) {
        row.worst = f.value;
        row.limit = f.limit;
        row.best = best;
        row.is_new = known != nullptr && std::isnan(best);
      }
      auto wrong = wrong_with(f, row.median, best);
      row.is_well = row.is_well && wrong.empty();
      add(verdict, one.whose(),
          {.rank = one.rank,
           .is_of_all = one.is_of_all(),
           .check = row.check,
           .unit = f.unit,
           .measured = f.value,
           .expected = worst_allowed(f, row.median, best),
           .fault = std::move(wrong),
           .is_wrong_configuration = f.is_wrong_configuration});
    }
    judge_bits(found, verdict, row.is_well);
    judge_missing(found, who, verdict, row.is_well);
    verdict.rows.push_back(row);
  }
  return verdict;
}

Baseline baseline_of(const std::vector<std::vector<Finding>>& by_rank, const std::vector<Who>& who,
                     Baseline before) {
  for (const auto& found : by_check(by_rank, who))
    for (const Found& one : found)
      if (one.finding->tolerance > 0 && one.finding->value > 0 && one.finding->value < kMost)
        before.keep(*one.finding, one.key());
  return before;
}

}  // namespace lockstep
