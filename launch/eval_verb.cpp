#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>
#include <unistd.h>

#include "core/file.h"
#include "core/log.h"
#include "core/units.h"
#include "dist/job/rendezvous.h"
#include "launch/config.h"
#include "launch/verb.h"
#include "train/infer/evaluate.h"
#include "train/infer/evaluate_choices.h"
#include "train/interop/model_tokenizer.h"
#include "train/run/run_shards.h"

namespace lockstep {
namespace {

struct EvalOptions {
  std::string model;              // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::vector<std::string> data;  // datasets; empty: data.validation of the run
  std::int64_t sequence_length = 0;  // 0: as in the run, or the model's maximum, at most 1024
  std::int64_t tokens = 0;           // 0: all
  bool document_mask = false;
  std::string choices;         // file of questions, instead of datasets
  std::int64_t questions = 0;  // number of questions, from the first; 0: all
  std::int64_t batch = 0;      // contexts per rank and batch; 0: as many as fit
  std::string document_start;  // "on", "off"; empty: from the tokenizer
  std::string out;             // file with a record per question; empty: none
  std::string tokenizer;       // see open_tokenizer; empty: the tokenizer of the model
  ModelRanksOptions ranks;
};

// The configuration of the run: its held-out datasets and sequence length.
Config configuration_of(const ModelSource& source) {
  const auto* values = source.about.find("configuration");
  if (values == nullptr)
    throw UsageError(str(source.path.string(),
                         " does not record its training configuration; name held-out datasets "
                         "with --data"));
  return config_from_json(*values, source.path.string() + ": configuration").values;
}

// The kind of rows that the run resolved from its training data.
RowKind rows_of(const ModelSource& source, RowKind configured) {
  const Json* data = source.about.find("data");
  if (data == nullptr) return configured;
  const Json* rows = data->find("rows");  // missing in old checkpoints
  for (const auto kind : {RowKind::windows, RowKind::examples, RowKind::packed})
    if (rows != nullptr && rows->as_string() == name(kind)) return kind;
  return RowKind::windows;
}

// The cache settings of the run for remote data.
Config::Data cache_of(const ModelSource& source) {
  return source.about.find("configuration") == nullptr ? Config::Data()
                                                       : configuration_of(source).data;
}

EvaluateRequest request_of(const EvalOptions& options, const ModelSource& source) {
  constexpr std::int64_t kMostLength = 1024, kTokensAtOnce = 4096;
  EvaluateRequest request{.datasets = options.data,
                          .sequence_length = options.sequence_length,
                          .tokens = options.tokens,
                          .document_mask = options.document_mask};
  if (request.datasets.empty()) {
    const auto config = configuration_of(source);
    request.datasets = config.data.validation;
    request.document_mask |= config.data.document_mask;
    request.rows = rows_of(source, config.data.rows);
    if (request.sequence_length == 0) request.sequence_length = config.train.sequence_length;
    if (request.datasets.empty())
      throw UsageError("the run has no data.validation; name a dataset with --data");
  }
  if (request.sequence_length == 0)
    request.sequence_length = std::min(source.model.max_positions, kMostLength);
  request.micro_batch = std::max<std::int64_t>(kTokensAtOnce / request.sequence_length, 1);
  return request;
}

// The tokenizer of a dataset. Returns nullptr if it is unknown, differs from the dataset's, or is
// unusable and was not requested: the loss does not need a tokenizer.
std::unique_ptr<Tokenizer> tokenizer_of_data(const EvalOptions& options, const ModelSource& source,
                                             const std::vector<std::string>& datasets,
                                             ShardFiles& files) {
  auto what = options.tokenizer.empty() ? tokenizer_of(source) : options.tokenizer;
  for (const auto& dataset : datasets)
    if (what.empty()) what = tokenizer_of_dataset(dataset, files);
  if (what.empty()) return nullptr;
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = open_tokenizer_of(source, what);
  } catch (const DataError& error) {
    if (!options.tokenizer.empty()) throw;
    log_warning("bits per byte are not computed because the tokenizer is not usable: ",
                error.what());
    return nullptr;
  }
  if (warn_of_other_tokenizer(datasets, *tokenizer, files)) return nullptr;
  return tokenizer;
}

// True if all ranks have a tokenizer. They count bytes together, so all need one.
bool all_have(const std::unique_ptr<Tokenizer>& tokenizer, World& world) {
  const auto said = world.exchange(tokenizer ? "yes" : "no");
  return std::find(said.begin(), said.end(), "no") == said.end();
}

Json json_of(const Evaluation& result, std::int64_t sequence_length) {
  Json json{Json::Object{}};
  json.set("loss_nats", result.loss);
  json.set("bits_per_token", result.loss / std::log(2.0));
  json.set("perplexity", std::exp(result.loss));
  json.set("tokens", result.tokens);
  json.set("sequence_length", sequence_length);
  const bool known = result.bytes > 0;
  const double by_byte =
      result.loss * static_cast<double>(result.tokens) / static_cast<double>(result.bytes);
  json.set("bytes", known ? Json(result.bytes) : Json());
  json.set("bits_per_byte", known ? Json(by_byte / std::log(2.0)) : Json());
  json.set("byte_perplexity", known ? Json(std::exp(by_byte)) : Json());
  json.set("seconds", result.seconds);
  return json;
}

std::string in_words(const Json& value) {
  if (value.is_null()) return "unknown";
  if (value.is_string()) return value.as_string();
  if (value.is_integer()) return with_commas(value.as_integer());
  if (value.is_number())
    return formatted(value.as_double() < 1e4 ? "%.4f" : "%.5g", value.as_double());
  std::string all;
  for (const auto& one : value.as_array())
    all += str(all.empty() ? "" : ", ", in_words(one));
  return all;
}

// A line for each figure, with its standard error: "acc  0.4231 +- 0.0049".
std::string table_of(const Json& result) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : result.as_object()) {
    if (key.ends_with("_stderr")) {
      rows.back().back() += " +- " + in_words(value);
      continue;
    }
    auto words = key;
    std::ranges::replace(words, '_', ' ');
    const bool is_time = key == "seconds";
    rows.push_back({is_time ? "time" : words,
                    is_time ? trimmed(human_seconds(value.as_double())) : in_words(value)});
  }
  return text_table(rows);
}

// A launcher may run its ranks in terminals of its own, as Open MPI does.
bool is_on_terminal() {
  return isatty(STDOUT_FILENO) == 1 && !find_ranks(environment(), {.has_mpi = true}).is_launched;
}

// Prints the model, the evaluated data and the figures: a table on a terminal, else JSON.
void print_result(const ModelSource& source, const char* what, Json on, const Json& figures) {
  Json json;
  json.set("model", source.path.string());
  json.set(what, std::move(on));
  for (const auto& [key, value] : figures.as_object())
    json.set(key, value);
  std::cout << (is_on_terminal() ? table_of(json) : json.dump() + "\n") << std::flush;
}

int eval_data(const EvalOptions& options, const ModelRanks& ranks, Stream& stream) {
  const auto source = find_model(options.model);
  auto request = request_of(options, source);
  RunShards files(cache_of(source), ranks.world);
  request.files = &files.files();
  files.need_room({Loader::Config{.sources = {{.paths = request.datasets}}, .shuffle = false}});
  const auto tokenizer = tokenizer_of_data(options, source, request.datasets, files.files());
  request.tokenizer = all_have(tokenizer, ranks.world) ? tokenizer.get() : nullptr;
  const auto result = evaluate(source, request, ranks, stream);
  if (ranks.world.rank() != 0) return 0;
  Json datasets;
  for (const auto& dataset : request.datasets)
    datasets.push(dataset);
  print_result(source, "data", std::move(datasets), json_of(result, request.sequence_length));
  return 0;
}

struct Measure {
  const char* name;
  Normalised by;
};
constexpr Measure kMeasures[] = {{"acc", Normalised::none},
                                 {"acc_norm", Normalised::by_characters},
                                 {"acc_bytes", Normalised::by_bytes},
                                 {"acc_tokens", Normalised::by_tokens}};

Json json_of(const ChoicesEvaluation& result) {
  Json json{Json::Object{}};
  json.set("questions", std::ssize(result.questions));
  for (const auto& [name, by] : kMeasures) {
    const auto share = share_correct(result.questions, result.scores, by);
    json.set(name, share.mean);
    json.set(str(name, "_stderr"), share.standard_error);
  }
  json.set("cut", result.cut);
  json.set("skipped", std::ssize(result.skipped));
  json.set("seconds", result.seconds);
  return json;
}

// One line of --out.
Json record_of(const Question& question, std::span<const ChoiceScore> scores) {
  Json record, logp, tokens;
  for (const ChoiceScore& score : scores) {
    logp.push(score.logp);
    tokens.push(score.tokens);
  }
  record.set("id", question.id);
  record.set("label", static_cast<std::int64_t>(question.label));
  for (const auto& [name, by] : kMeasures)
    record.set(str("best", name + 3), static_cast<std::int64_t>(best_choice(scores, by)));
  record.set("logp", std::move(logp));
  record.set("tokens", std::move(tokens));
  return record;
}

Json record_of(const ChoicesEvaluation::Skipped& skipped) {
  Json record;
  record.set("id", skipped.question.id);
  record.set("label", static_cast<std::int64_t>(skipped.question.label));
  record.set("skipped", skipped.why);
  return record;
}

// Writes the records in the order of the question file.
void write_records(WriteFile& file, const ChoicesEvaluation& result) {
  std::string lines;
  auto skipped = result.skipped.begin();
  for (std::size_t i = 0; i <= result.questions.size(); ++i) {
    const bool last = i == result.questions.size();
    for (; skipped != result.skipped.end() &&
           (last || skipped->question.line < result.questions[i].line);
         ++skipped)
      lines += record_of(*skipped).dump() + "\n";
    if (!last) lines += record_of(result.questions[i], result.scores[i]).dump() + "\n";
  }
  file.write(std::as_bytes(std::span(lines)));
  file.commit();
}

bool document_start(const EvalOptions& options, const std::string& what,
                    const Tokenizer& tokenizer) {
  if (options.document_start.empty()) return starts_documents(what, tokenizer);
  if (options.document_start != "on" && options.document_start != "off")
    throw UsageError(str("--document-start ", options.document_start, ": expected on or off"));
  return options.document_start == "on";
}

int eval_choices(const EvalOptions& options, const ModelRanks& ranks, Stream& stream) {
  const auto source = find_model(options.model);
  const auto what = options.tokenizer.empty() ? tokenizer_of(source) : options.tokenizer;
  const auto tokenizer = open_tokenizer_of(source, what);
  std::optional<WriteFile> records;  // opened before the evaluation, to report errors early
  if (!options.out.empty() && ranks.world.rank() == 0) {
    if (directory_exists(options.out))
      throw UsageError(str("--out ", options.out, ": expected a file name, found a directory"));
    records.emplace(options.out);
  }
  const auto result = evaluate_choices(source,
                                       {.file = options.choices,
                                        .tokenizer = *tokenizer,
                                        .document_start = document_start(options, what, *tokenizer),
                                        .most_questions = options.questions,
                                        .batch = options.batch},
                                       ranks, stream);
  if (ranks.world.rank() != 0) return 0;
  print_result(source, "choices", options.choices, json_of(result));
  if (records) write_records(*records, result);
  return 0;
}

// Rank 0 prints the result. For tokens: loss_nats, bits_per_token,
// perplexity, tokens, sequence_length, bytes, bits_per_byte and byte_perplexity (the last three are
// null if the tokenizer is unknown), and seconds. For questions: acc, acc_norm, acc_bytes and
// acc_tokens, each with its _stderr.
int run_eval(const EvalOptions& options) {
  std::string datasets;
  for (const auto& dataset : options.data)
    datasets += dataset + " ";
  const Fields settings{{"MODEL", options.model},
                        {"--data", datasets},
                        {"--choices", options.choices},
                        {"--tokenizer", options.tokenizer},
                        {"--document-start", options.document_start},
                        {"--sequence-length", std::to_string(options.sequence_length)},
                        {"--tokens", std::to_string(options.tokens)},
                        {"--questions", std::to_string(options.questions)},
                        {"--batch", std::to_string(options.batch)},
                        {"--document-mask", options.document_mask ? "on" : "off"}};
  return on_model_ranks(options.ranks, settings, [&](const ModelRanks& ranks, Stream& stream) {
    return options.choices.empty() ? eval_data(options, ranks, stream)
                                   : eval_choices(options, ranks, stream);
  });
}

}  // namespace

Verb eval_verb() {
  auto o = std::make_shared<EvalOptions>();
  std::vector<Flag> flags{
      {"model", &o->model, "Model", "MODEL", kModelForms, kRequired},
      {"--data", &o->data, "Data", "DATASET",
       "datasets to evaluate on (default: data.validation of the run)"},
      {"--tokens", &o->tokens, "Data", "N",
       "number of tokens, rounded down to whole sequences (at least one sequence); 0: all "
       "(default)",
       kRule.within(0)},
      {"--sequence-length", &o->sequence_length, "Data", "TOKENS",
       "sequence length (default: as in the run, otherwise the model's maximum, at most 1024)",
       kRule.within(1)},
      {"--document-mask", &o->document_mask, "Data", "", "mask attention across documents"},
      {"--choices", &o->choices, "Questions", "FILE.jsonl",
       "multiple-choice questions (docs/evaluation.md)", kRule.excluding({"--data"})},
      {"--questions", &o->questions, "Questions", "N",
       "number of questions, from the first; 0: all (default)",
       kRule.within(0).needing("--choices")},
      {"--batch", &o->batch, "Questions", "N",
       "maximum contexts per rank and batch; a WinoGrande question has two (default: by length)",
       kRule.within(1, 65536).needing("--choices")},
      {"--document-start", &o->document_start, "Questions", "on|off",
       "put the token that starts documents before each context (default: from the tokenizer)",
       kRule.needing("--choices")},
      {"--out", &o->out, "Questions", "FILE.jsonl", "write one JSON line per question",
       kRule.needing("--choices")},
      {"--tokenizer", &o->tokenizer, "Model", "WHAT", kTokenizerHelp}};
  std::ranges::move(ranks_flags(o->ranks), std::back_inserter(flags));
  return {"eval", "compute the loss on held-out tokens, or the accuracy on questions",
          std::move(flags), [o] { return run_eval(*o); }};
}

}  // namespace lockstep
