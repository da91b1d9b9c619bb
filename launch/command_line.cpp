#include "launch/command_line.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>

#include "core/nearest.h"
#include "core/thread_pool.h"
#include "core/toml.h"
#include "launch/checkpoint_verb.h"
#include "launch/config_verb.h"
#include "launch/data_verb.h"
#include "launch/eval_verb.h"
#include "launch/generate_verb.h"
#include "launch/plan/cluster_file.h"
#include "launch/plan/layout_search.h"
#include "launch/plan_verb.h"
#include "launch/preflight_verb.h"
#include "launch/report_verb.h"
#include "launch/train_verb.h"
#include "launch/version.h"
#include "launch/watch_verb.h"

namespace lockstep {
namespace {

using Run = std::function<int()>;

constexpr const char* kOther = "Other";  // the last topic of each help
constexpr const char* kModelForms =
    "a run or its archive, a checkpoint, a Hugging Face directory or an llm.c model";
constexpr const char* kCheckpointForms = "a checkpoint, or a run or its archive: the newest one";

std::string full_name(const CLI::App& app) {
  const auto* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

// Help: usage, what the verb does, then its flags by topic, each with its unit and default.
class Help : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string /*name*/,
                        CLI::AppFormatMode /*mode*/) const override {
    std::string text = "usage: " + full_name(*app) + usage(*app) + "\n\n" + app->get_description();
    text += "\n" + verbs(*app);
    auto topics = app->get_groups();
    std::stable_partition(topics.begin(), topics.end(), [](auto& t) { return t != kOther; });
    for (const auto& topic : topics) {
      std::string lines;
      for (const auto* option : app->get_options())
        if (option->get_group() == topic) lines += line(signature(*option), meaning(*option));
      if (!lines.empty()) text += str("\n", topic, ":\n", lines);
    }
    return text;
  }

 private:
  static std::string usage(const CLI::App& app) {
    std::string text = app.get_subcommands(nullptr).empty() ? "" : " VERB";
    for (const auto* option : app.get_options())
      if (option->get_positional())
        text += option->get_required() ? str(" ", signature(*option))
                                       : str(" [", signature(*option), "]");
    return text + " [FLAGS]";
  }

  static std::string verbs(const CLI::App& app) {
    std::string text;
    for (const auto* verb : app.get_subcommands(nullptr))
      text += line(verb->get_name(), verb->get_description());
    return text.empty() ? "" : "\nVerbs:\n" + text;
  }

  // "--run DIR", "CONFIG.toml", "INPUT..."
  static std::string signature(const CLI::Option& option) {
    const auto unit = option.get_type_size() == 0 ? "" : option.get_type_name();
    const auto repeated = option.get_expected_max() > 1 ? "..." : "";
    if (option.get_positional()) return unit + repeated;
    return option.get_name(false, true) + (unit.empty() ? "" : " " + unit) + repeated;
  }

  static std::string meaning(const CLI::Option& option) {
    const auto value = option.get_default_str();
    const auto& text = option.get_description();
    return value.empty() || value == "\"\"" ? text : str(text, " (default ", value, ")");
  }

  static std::string line(std::string left, const std::string& right) {
    constexpr std::size_t kColumn = 28;
    left.insert(0, "  ");
    const bool fits = left.size() + 2 <= kColumn;
    left.resize(fits ? kColumn : left.size(), ' ');
    return left + (fits ? "" : "\n" + std::string(kColumn, ' ')) + right + "\n";
  }
};

// What `add_option` cannot know: the flag's topic, and the unit of its value.
CLI::Option* describe(CLI::Option* option, const char* topic, const char* unit) {
  return option->group(topic)->type_name(unit);
}

// Refuses other numbers than those from `least` to `most`, by the flag's name.
CLI::Option* within(CLI::Option* option, double least, double most = HUGE_VAL) {
  return option->check([least, most](const std::string& text) -> std::string {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return str("expected a number, found ", text);
    if (least <= value && value <= most) return "";
    const auto limit =
        std::isinf(most) ? "" : str(" and at most ", static_cast<std::int64_t>(most));
    return str("expected at least ", least, limit, ", found ", text);
  });
}

CLI::App* add_verb(CLI::App& app, const char* name, const char* what) {
  auto* verb = app.add_subcommand(name, what);
  verb->set_help_flag("-h,--help", "print this")->group(kOther);
  return verb;
}

CLI::Option* add_settings(CLI::App& verb, std::vector<Setting>& settings) {
  const auto add = [&settings](const std::string& text) {
    settings.push_back(parse_setting(text));
  };
  return describe(verb.add_option_function<std::string>(
                      "--set", add,
                      "set a key of the configuration (docs/configuration.md); repeatable"),
                  "Configuration", "TABLE.KEY=VALUE")
      ->trigger_on_parse();
}

void add_config(CLI::App& app, Run& run) {
  auto* verb =
      add_verb(app, "config", "print the resolved configuration and where each value came from");
  auto options = std::make_shared<ConfigOptions>();
  auto* config = describe(verb->add_option("config", options->config, "the run's configuration"),
                          "Configuration", "CONFIG.toml");
  auto* settings = add_settings(*verb, options->settings);
  auto* reference =
      verb->add_flag("--reference", options->reference, "print what every key means instead")
          ->group("Output");
  auto* model = describe(
      verb->add_option("--model", options->model,
                       "print the table [model] of a run, a Hugging Face or an llm.c model"),
      "Output", "MODEL");
  reference->excludes(config)->excludes(settings);
  model->excludes(config)->excludes(settings)->excludes(reference);
  verb->callback([options, &run] {
    if (options->config.empty() && options->model.empty() && !options->reference)
      throw UsageError("config: expected CONFIG.toml, --model or --reference");
    run = [options] { return run_config(*options); };
  });
}

constexpr const char* kDeviceHelp = "what computes (default: a GPU where one can be used)";

void add_train(CLI::App& app, Run& run) {
  auto* verb = add_verb(app, "train", "train a model, or go on with a run where it stopped");
  auto options = std::make_shared<TrainVerbOptions>();
  describe(verb->add_option("config", options->config, "the run's configuration")->required(),
           "Configuration", "CONFIG.toml");
  add_settings(*verb, options->settings);
  describe(verb->add_option(
               "--run", options->run,
               "where the run is kept (default: the run that saved CONFIG.toml, or runs/ and its "
               "name)"),
           "Run", "DIR");
  const auto init_from = [options](const std::string& path) {
    options->settings.push_back({"train.init_from", toml_quoted(path), "--init-from"});
  };
  describe(verb->add_option_function<std::string>(
               "--init-from", init_from,
               "start from the weights of a run, a Hugging Face or an llm.c model"),
           "Run", "DIR");
  const auto files = [options](const std::string& by) {
    options->settings.push_back({"checkpoint.files", toml_quoted(by), "--checkpoint-files"});
  };
  describe(verb->add_option_function<std::string>("--checkpoint-files", files,
                                                  "checkpoint.files: who writes a file of them"),
           "Run", "rank|node");
  describe(verb->add_option("--device", options->device, kDeviceHelp), "Run", "cpu|cuda");
  verb->add_flag("--allow-dataset-change", options->allow_dataset_change,
                 "go on although the training data are not what they were")
      ->group("Run");
  verb->add_flag("--allow-tensor-across-nodes", options->allow_tensor_across_nodes,
                 "let ranks of layout.tensor lie in several NVLink domains, which is slow")
      ->group("Run");
  within(describe(verb->add_option("--trace", options->trace_steps,
                                   "write what each stream did when, for Perfetto"),
                  "Run", "STEPS"),
         1, 1000);
  within(describe(verb->add_option("--verify-resume", options->verify_steps,
                                   "first compute so many steps again, and compare them bit by bit "
                                   "with what the run recorded"),
                  "Run", "STEPS"),
         1, 1'000'000);
  verb->callback([options, &run] { run = [options] { return run_train(*options); }; });
}

void add_machine(CLI::App& verb, std::string& device, int& threads) {
  describe(verb.add_option("--device", device, kDeviceHelp), "Machine", "cpu|cuda");
  within(describe(verb.add_option("--threads", threads, "of the CPU (default: every processor)"),
                  "Machine", "N"),
         1, most_threads());
}

constexpr const char* kTokenizerHelp =
    "bytes, a tokenizer's file, or a directory that holds one (default: the model's own)";

void add_ranks(CLI::App& verb, ModelRanksOptions& ranks) {
  within(describe(verb.add_option("--tensor", ranks.tensor,
                                  "of those that mpirun or srun start, share each matrix")
                      ->capture_default_str(),
                  "Ranks", "N"),
         1, 1'000'000);
  within(describe(verb.add_option("--shard", ranks.shard,
                                  "of them hold each a part of the weights, and gather them")
                      ->capture_default_str(),
                  "Ranks", "N"),
         1, 1'000'000);
  add_machine(verb, ranks.device, ranks.threads);
}

void add_generate(CLI::App& app, Run& run) {
  auto* verb = add_verb(app, "generate", "continue a text");
  auto options = std::make_shared<GenerateOptions>();
  auto& sampling = options->sampling;
  describe(verb->add_option("model", options->model, kModelForms)->required(), "Model", "MODEL");
  auto* prompt =
      describe(verb->add_option("--prompt", options->prompt, "text to go on from"), "Text", "TEXT");
  describe(verb->add_option("--prompt-file", options->prompt_file,
                            "a file of it; of NAME.jsonl {\"prompt\": TEXT} a line, each answered "
                            "by a line of JSON"),
           "Text", "FILE")
      ->excludes(prompt);
  describe(verb->add_option("--stop", options->stops,
                            "end what is written in front of this text or special token, where it "
                            "comes up; given several times: of the first that comes up"),
           "Text", "TEXT")
      ->allow_extra_args(false);
  within(describe(verb->add_option("--batch", options->batch, "prompts of a NAME.jsonl at once")
                      ->capture_default_str(),
                  "Text", "N"),
         1, 65536);
  describe(verb->add_option("--tokenizer", options->tokenizer, kTokenizerHelp), "Text", "WHAT");
  const auto* tokens = within(
      describe(verb->add_option("--tokens", options->tokens, "to generate")->capture_default_str(),
               "Text", "N"),
      0);
  within(describe(verb->add_option("--temperature", sampling.temperature,
                                   "0: always the likeliest token")
                      ->capture_default_str(),
                  "Sampling", "X"),
         0);
  within(describe(verb->add_option("--top-k", sampling.top_k, "among the k likeliest; 0: all")
                      ->capture_default_str(),
                  "Sampling", "K"),
         0);
  within(
      describe(verb->add_option("--top-p", sampling.top_p, "among the likeliest that reach share p")
                   ->capture_default_str(),
               "Sampling", "P"),
      0, 1);
  within(
      describe(
          verb->add_option("--seed", sampling.seed, "of the random numbers")->capture_default_str(),
          "Sampling", "N"),
      0);
  add_ranks(*verb, options->ranks);
  verb->callback([options, tokens, &run] {
    options->asked_tokens = tokens->count() > 0;
    run = [options] { return run_generate(*options); };
  });
}

void add_eval(CLI::App& app, Run& run) {
  auto* verb = add_verb(app, "eval",
                        "the loss of a model on held-out tokens, or how often it knows an answer");
  auto options = std::make_shared<EvalOptions>();
  describe(verb->add_option("model", options->model, kModelForms)->required(), "Model", "MODEL");
  auto* data = describe(verb->add_option("--data", options->data,
                                         "datasets to evaluate on (default: what the run held "
                                         "out)"),
                        "Data", "DATASET");
  within(describe(verb->add_option("--tokens", options->tokens,
                                   "rounded down to windows, at least one; 0: all (default)"),
                  "Data", "N"),
         0);
  within(describe(verb->add_option(
                      "--sequence-length", options->sequence_length,
                      "of a window (default: the run's, or the model's positions, 1024 at most)"),
                  "Data", "TOKENS"),
         1);
  verb->add_flag("--document-mask", options->document_mask, "no attention across documents")
      ->group("Data");
  auto* choices = describe(verb->add_option("--choices", options->choices,
                                            "questions with several answers (docs/evaluation.md)"),
                           "Questions", "FILE.jsonl");
  choices->excludes(data);
  within(describe(verb->add_option("--questions", options->questions,
                                   "only the first so many; 0: all (default)"),
                  "Questions", "N"),
         0)
      ->needs(choices);
  within(
      describe(verb->add_option("--batch", options->batch,
                                "contexts of a rank at once, at most; of WinoGrande each question "
                                "has two (default: by length)"),
               "Questions", "N"),
      1, 65536)
      ->needs(choices);
  describe(verb->add_option("--document-start", options->document_start,
                            "the token that starts documents in front of each context (default: "
                            "as the tokenizer says)"),
           "Questions", "on|off")
      ->needs(choices);
  describe(verb->add_option("--out", options->out, "write a line of JSON for each question"),
           "Questions", "FILE.jsonl")
      ->needs(choices);
  describe(verb->add_option("--tokenizer", options->tokenizer, kTokenizerHelp), "Model", "WHAT");
  add_ranks(*verb, options->ranks);
  verb->callback([options, &run] { run = [options] { return run_eval(*options); }; });
}

void add_plan(CLI::App& app, Run& run) {
  auto* verb = add_verb(
      app, "plan", "say before a launch what fits, how fast it will be, and what would be faster");
  auto options = std::make_shared<PlanOptions>();
  describe(verb->add_option("config", options->config, "the run's configuration")->required(),
           "Configuration", "CONFIG.toml");
  add_settings(*verb, options->settings);
  within(describe(verb->add_option("--sequence-length", options->sequence_length,
                                   "what if sequences were so long, a step's tokens as they are"),
                  "Configuration", "TOKENS"),
         1, 1 << 30);
  describe(verb->add_option("--cluster", options->cluster,
                            "the machines: one of configs/clusters, or the cluster.json of "
                            "preflight (default: what plan.cluster of the configuration names, "
                            "else the GPUs that are here)"),
           "Machines", "FILE");
  describe(verb->add_option("--gpu", options->gpu,
                            str("what if the GPUs of --cluster were these, or, without it, eight "
                                "of them: ",
                                known_gpus())),
           "Machines", "NAME");
  constexpr double kMost = kMostPlannedRanks;
  within(describe(verb->add_option("--nodes", options->nodes, "what if there were so many"),
                  "Machines", "N"),
         1, kMost);
  within(describe(verb->add_option("--ranks", options->ranks,
                                   "of the run (default: all that the machines have)"),
                  "Machines", "N"),
         1, kMost);
  within(describe(verb->add_option("--network", options->network_gbits,
                                   "what if the adapter of a GPU had so much"),
                  "Machines", "GBIT/S"),
         1e-3, 1e6);
  within(describe(verb->add_option("--storage", options->storage_gbytes,
                                   "what if a node read, and wrote, so much while all do"),
                  "Machines", "GB/S"),
         1e-3, 1e6);
  verb->add_flag("--allow-tensor-across-nodes", options->allow_tensor_across_nodes,
                 "plan the configuration's layout as a run with this option takes it")
      ->group("Machines");
  verb->add_flag("--check", options->check,
                 "leave out other layouts, and exit with 78 where there is too little memory")
      ->group("Output");
  verb->add_flag("--json", options->as_json, "print one JSON object (docs/formats.md)")
      ->group("Output");
  verb->add_flag("--explain", options->explain,
                 "print what the calls of a step take, and each formula with its inputs")
      ->group("Output");
  verb->callback([options, &run] { run = [options] { return run_plan(*options); }; });
}

void add_report(CLI::App& app, Run& run) {
  auto* verb = add_verb(app, "report", "write what runs did as one page of HTML");
  auto options = std::make_shared<ReportOptions>();
  describe(verb->add_option("run", options->runs,
                            "directories of runs; several are laid over each other, and compared")
               ->required(),
           "Run", "RUN");
  describe(verb->add_option("--out", options->out,
                            "the page (default, of one run: report.html in its directory)"),
           "Output", "FILE.html");
  verb->callback([options, &run] { run = [options] { return run_report(*options); }; });
}

void add_preflight(CLI::App& app, Run& run) {
  auto* verb = add_verb(app, "preflight",
                        "measure the machines of a run, and name those that are ill or slow");
  auto options = std::make_shared<PreflightVerbOptions>();
  describe(verb->add_option("config", options->config,
                            "a run's configuration: its products, layout and steps (default: none "
                            "of a model)"),
           "Configuration", "CONFIG.toml");
  add_settings(*verb, options->settings);
  describe(verb->add_option("--cluster-out", options->cluster_out,
                            "write what plans are calibrated on, where nothing is wrong")
               ->capture_default_str(),
           "Output", "FILE");
  describe(verb->add_option("--baseline", options->baseline,
                            "compare with it, and keep there what was found (default: "
                            "preflight.json beside --cluster-out)"),
           "Output", "FILE");
  describe(verb->add_option("--scratch", options->scratch, "a folder, where storage is measured")
               ->capture_default_str(),
           "Machine", "DIR");
  add_machine(*verb, options->device, options->threads);
  verb->callback([options, &run] { run = [options] { return run_preflight(*options); }; });
}

void add_watch(CLI::App& app, Run& run) {
  auto* verb = add_verb(app, "watch", "follow a run in this terminal, until q or Ctrl-C");
  auto options = std::make_shared<WatchVerbOptions>();
  describe(verb->add_option("run", options->run,
                            "its directory, which need not be there yet; where the output is no "
                            "terminal, what is known is printed once")
               ->required(),
           "Run", "RUN");
  verb->callback([options, &run] { run = [options] { return run_watch(*options); }; });
}

void add_export(CLI::App& group, Run& run) {
  auto* verb = add_verb(group, "export", "write a model as a Hugging Face directory");
  auto options = std::make_shared<CheckpointExportOptions>();
  describe(verb->add_option("model", options->model, kModelForms)->required(), "Model", "MODEL");
  describe(verb->add_option("--out", options->out, "the directory to write")->required(), "Output",
           "DIR");
  describe(verb->add_option("--dtype", options->dtype, "of the weights")->capture_default_str(),
           "Output", "bf16|fp32");
  describe(
      verb->add_option("--tokenizer-from", options->tokenizer_from,
                       "copy the tokenizer files of this directory (default: the model's own)"),
      "Output", "DIR");
  verb->callback([options, &run] { run = [options] { return checkpoint_export(*options); }; });
}

void add_import(CLI::App& group, Run& run) {
  auto* verb = add_verb(group, "import", "make a model the first checkpoint of a run");
  auto options = std::make_shared<CheckpointImportOptions>();
  describe(verb->add_option("model", options->model, kModelForms)->required(), "Model", "MODEL");
  describe(verb->add_option("--out", options->out, "the run's directory")->required(), "Output",
           "DIR");
  verb->callback([options, &run] { run = [options] { return checkpoint_import(*options); }; });
}

void add_checkpoint(CLI::App& app, Run& run) {
  auto* group = add_verb(app, "checkpoint", "what a run has saved");
  group->require_subcommand(1);
  auto* list =
      add_verb(*group, "list",
               "the checkpoints of a run, and whether each validates (exit 65 where one does not)");
  auto path = std::make_shared<std::string>();
  describe(list->add_option("run", *path, "the run, or its archive")->required(), "Run", "DIR");
  list->callback([path, &run] { run = [path] { return checkpoint_list(*path); }; });
  auto* verify = add_verb(*group, "verify", "read every byte of a checkpoint, or of all of a run");
  describe(verify->add_option("path", *path, kCheckpointForms)->required(), "Run", "PATH");
  verify->callback([path, &run] { run = [path] { return checkpoint_verify(*path); }; });
  auto* inspect = add_verb(*group, "inspect", "what a checkpoint holds");
  describe(inspect->add_option("path", *path, kCheckpointForms)->required(), "Run", "PATH");
  inspect->callback([path, &run] { run = [path] { return checkpoint_inspect(*path); }; });
  auto* diff =
      add_verb(*group, "diff", "which tensors of two checkpoints differ (exit 1 where some do)");
  auto other = std::make_shared<std::string>();
  describe(diff->add_option("a", *path, kCheckpointForms)->required(), "Run", "PATH");
  describe(diff->add_option("b", *other, kCheckpointForms)->required(), "Run", "PATH");
  diff->callback(
      [path, other, &run] { run = [path, other] { return checkpoint_diff(*path, *other); }; });
  auto* prune = add_verb(*group, "prune", "delete old checkpoints of a run");
  auto pruned = std::make_shared<CheckpointPruneOptions>();
  describe(prune->add_option("run", pruned->run, "the run")->required(), "Run", "DIR");
  within(describe(prune->add_option("--keep-last", pruned->keep_last,
                                    "the newest so many stay (default: as the run's settings say, "
                                    "here and below)"),
                  "Run", "N"),
         1);
  within(describe(prune->add_option("--keep-every-steps", pruned->keep_every_steps,
                                    "and those of multiples of so many steps; 0: none for that"),
                  "Run", "STEPS"),
         0);
  within(describe(prune->add_option("--keep-best", pruned->keep_best,
                                    "and the so many of the lowest validation loss"),
                  "Run", "N"),
         0);
  prune->add_flag("--dry-run", pruned->dry_run, "only write which would be deleted")->group("Run");
  prune->callback([pruned, &run] { run = [pruned] { return checkpoint_prune(*pruned); }; });
  add_export(*group, run);
  add_import(*group, run);
}

void add_data_pack(CLI::App& data, Run& run) {
  auto* verb = add_verb(data, "pack", "turn text into a dataset of tokens");
  auto options = std::make_shared<DataPackOptions>();
  describe(verb->add_option("input", options->inputs,
                            "text, or lines of JSON, both also compressed by gzip or zstd: files, "
                            "directories with them, quoted patterns ('*.jsonl.zst'); -: standard "
                            "input")
               ->required(),
           "Text", "INPUT");
  describe(
      verb->add_option("--document-separator", options->document_separator,
                       "what stands between documents of text, such as '\\n\\n', '\\r\\n\\r\\n' "
                       "where lines end so (default: a file is a document)")
          ->each([](const std::string& text) {
            if (text.empty())
              throw UsageError(
                  "--document-separator: expected text; where it is not given a "
                  "file is a document");
          }),
      "Text", "TEXT");
  describe(verb->add_option("--field", options->field,
                            "the member of a line of JSON that is a document, meta.text of an "
                            "object in it (default: text, of files called *.jsonl, *.ndjson, "
                            "*.jl or *.json.gz; all others are text)"),
           "Text", "NAME");
  verb->add_flag("--plain-text", options->plain_text,
                 "text is taken as it stands: names of special tokens, such as <|endoftext|>, are "
                 "text like any other (default: these tokens), and JSON and tables are text "
                 "(default: refused)")
      ->group("Text");
  describe(verb->add_option("--missing-bytes", options->missing_bytes,
                            "text with a byte that the tokenizer has no token for: refuse; drop "
                            "the byte, as transformers does; or replace its character by U+FFFD")
               ->capture_default_str(),
           "Text", "refuse|drop|replace");
  describe(verb->add_option("--prompt-field", options->prompt_field,
                            "to learn responses: the member that is not learnt, only read"),
           "Responses", "NAME");
  describe(verb->add_option("--response-field", options->response_field, "and the one that is"),
           "Responses", "NAME");
  describe(verb->add_option("--messages-field", options->messages_field,
                            "a conversation, a list of {\"role\", \"content\"}, of which what the "
                            "assistant says is learnt"),
           "Responses", "NAME");
  describe(verb->add_option("--chat-template", options->chat_template,
                            "what stands around messages: chatml, llama3, or a file "
                            "(docs/packing.md)"),
           "Responses", "NAME");
  describe(verb->add_option("--out", options->out,
                            "the dataset; must not exist yet. What is done lies in DIR.tmp: the "
                            "same command goes on where it was stopped")
               ->required(),
           "Dataset", "DIR");
  describe(verb->add_option("--tokenizer", options->tokenizer,
                            "what turns text into tokens: bytes, a tokenizer's file "
                            "(tokenizer.json, tekken.json, a rank file) or a directory that holds "
                            "one")
               ->capture_default_str(),
           "Dataset", "bytes|PATH");
  describe(verb->add_option("--document-token", options->document_token,
                            "the token in front of a document (default: as the tokenizer's files "
                            "say)"),
           "Dataset", "TOKEN");
  describe(verb->add_option("--validation", options->validation,
                            "share of documents held out in DIR/validation: 0.5%, or 0.005, which "
                            "is the same (0.5 is half of them); the rest is DIR/train"),
           "Dataset", "SHARE");
  within(describe(verb->add_option("--shard-tokens", options->shard_tokens, "in a file at most")
                      ->capture_default_str(),
                  "Dataset", "TOKENS"),
         1, std::numeric_limits<std::int32_t>::max());
  within(describe(verb->add_option("--threads", options->threads,
                                   "that tokenize (default: one a processor)"),
                  "Dataset", "N"),
         1, most_threads());
  verb->callback([options, &run] { run = [options] { return data_pack(*options); }; });
}

void add_data_inspect(CLI::App& data, Run& run) {
  auto* verb = add_verb(data, "inspect", "say what a dataset holds, and show some of it");
  auto options = std::make_shared<DataInspectOptions>();
  describe(verb->add_option("dataset", options->dataset, "its directory, or a shard")->required(),
           "Dataset", "DATASET");
  within(describe(verb->add_option("--at", options->at,
                                   "show this token, marked, in its document (default: the first "
                                   "tokens)"),
                  "Dataset", "N"),
         0);
  within(describe(
             verb->add_option("--count", options->count,
                              "tokens to show, of --at from there on, and at most as many in front")
                 ->capture_default_str(),
             "Dataset", "N"),
         0);
  describe(verb->add_option("--tokenizer", options->tokenizer,
                            "by which tokens are shown as text (default: the one beside the "
                            "dataset)"),
           "Dataset", "bytes|PATH");
  verb->callback([options, &run] { run = [options] { return data_inspect(*options); }; });
}

void add_data_convert(CLI::App& data, Run& run) {
  auto* verb = add_verb(data, "convert", "write a dataset as shards of another format");
  auto options = std::make_shared<DataConvertOptions>();
  describe(verb->add_option("input", options->inputs,
                            "directories, shards or patterns of any format that is read")
               ->required(),
           "Dataset", "DATASET");
  describe(verb->add_option("--to", options->to, "lockstep, llmc, nanogpt, megatron or datatrove")
               ->required(),
           "Dataset", "FORMAT");
  describe(verb->add_option("--out", options->out, "the directory; must not exist yet")->required(),
           "Dataset", "DIR");
  describe(verb->add_option("--name", options->name, "what the names of files begin with")
               ->capture_default_str(),
           "Dataset", "NAME");
  within(describe(verb->add_option("--shard-tokens", options->shard_tokens,
                                   "a file ends where it has so many (nanogpt: one file)")
                      ->capture_default_str(),
                  "Dataset", "TOKENS"),
         1, std::numeric_limits<std::int32_t>::max());
  describe(verb->add_option("--tokenizer", options->tokenizer,
                            "that the tokens are of, where the input does not say it"),
           "Dataset", "bytes|PATH");
  within(describe(verb->add_option("--vocabulary", options->vocabulary,
                                   "ids are below it, where there is no --tokenizer (default: one "
                                   "more than the largest)"),
                  "Dataset", "N"),
         1, std::numeric_limits<std::int32_t>::max());
  verb->callback([options, &run] { run = [options] { return data_convert(*options); }; });
}

void add_data_verify(CLI::App& data, Run& run) {
  auto* verb = add_verb(data, "verify", "read every byte of datasets and list all damage");
  auto datasets = std::make_shared<std::vector<std::string>>();
  describe(verb->add_option("dataset", *datasets, "directories, or shards")->required(), "Dataset",
           "DATASET");
  verb->callback([datasets, &run] { run = [datasets] { return data_verify(*datasets); }; });
}

void add_data(CLI::App& app, Run& run) {
  auto* group = add_verb(app, "data", "datasets of tokens");
  group->require_subcommand(1);
  add_data_pack(*group, run);
  add_data_inspect(*group, run);
  add_data_convert(*group, run);
  add_data_verify(*group, run);
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* verb : app.get_subcommands(nullptr))
    names.push_back(verb->get_name());
  return names;
}

std::vector<std::string> flags_of(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const auto* option : verb.get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  return names;
}

// Verbs that this program has under another name.
std::string meant_verb(const CLI::App& verb, const std::string& unknown) {
  const bool is_comparison = verb.get_parent() == nullptr && unknown == "compare";
  return is_comparison ? "report RUN RUN" : nearest(unknown, verbs_of(verb));
}

// The verb that the arguments reached: `lockstep data pack` is two deep.
const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

[[noreturn]] void refuse(const CLI::App& app, const std::string& what) {
  const auto& verb = innermost(app);
  const auto extras = app.remaining(true);
  const auto see = str("; see `", full_name(verb), " --help`");
  const auto verbs = verbs_of(verb);
  if (extras.empty() && !verbs.empty()) throw UsageError("expected a verb" + see);
  if (extras.empty()) throw UsageError(what + see);
  const auto& unknown = extras.front();
  const bool is_flag = unknown.size() > 1 && unknown.front() == '-';
  const bool is_verb = !is_flag && !verbs.empty();
  const auto near = is_flag ? nearest(unknown.substr(0, unknown.find('=')), flags_of(verb))
                            : meant_verb(verb, unknown);
  throw UsageError(str(is_flag   ? "unknown flag "
                       : is_verb ? "unknown verb "
                                 : "unexpected argument ",
                       unknown, near.empty() ? "" : str("; did you mean ", near, "?"),
                       near.empty() ? see : ""));
}

// CLI11's sentence: without its capital, and an argument by the name that the help gives it.
std::string sentence(std::string text, const CLI::App& verb) {
  if (!text.empty()) text.front() = static_cast<char>(std::tolower(text.front()));
  for (const auto* option : verb.get_options())
    if (const auto name = option->get_name(true);
        option->get_positional() && !name.empty() && text.rfind(name + " ", 0) == 0)
      text.replace(0, name.size(), option->get_type_name());
  constexpr std::string_view kUnread = "could not convert: ", kIs = " = ";
  if (const auto at = text.find(kIs); text.starts_with(kUnread) && at != std::string::npos)
    text = str(text.substr(kUnread.size(), at - kUnread.size()),
               ": expected a whole number, found ", text.substr(at + kIs.size()));
  constexpr std::string_view kTwice = " At Most 1 required but received ";
  if (const auto at = text.find(kTwice); at != std::string::npos)
    text = str(text.substr(0, at), " expected once, given ", text.substr(at + kTwice.size()),
               " times");
  return text;
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments) {
  CLI::App app("Lockstep trains GPT-style language models.", "lockstep");
  app.formatter(std::make_shared<Help>());
  app.set_version_flag("--version", version_text, "print version, commit and features")
      ->group(kOther);
  app.set_help_flag("-h,--help", "print this; after a verb, what it takes")->group(kOther);
  app.require_subcommand(1);
  Run run;
  add_data(app, run);
  add_plan(app, run);
  add_train(app, run);
  add_generate(app, run);
  add_eval(app, run);
  add_report(app, run);
  add_watch(app, run);
  add_preflight(app, run);
  add_checkpoint(app, run);
  add_config(app, run);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    std::cout << innermost(app).help();
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what();
    return 0;
  } catch (const CLI::ParseError& e) {
    refuse(app, sentence(e.what(), innermost(app)));
  }
  return run();
}

}  // namespace lockstep
