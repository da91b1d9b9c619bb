#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>

#include "core/json.h"
#include "core/log.h"
#include "core/output.h"
#include "core/units.h"
#include "core/utf8.h"
#include "launch/verb.h"
#include "model/generate.h"
#include "train/infer/answer.h"
#include "train/infer/loaded_model.h"
#include "train/infer/prompts.h"
#include "train/interop/model_source.h"
#include "train/interop/model_tokenizer.h"

namespace lockstep {
namespace {

struct GenerateOptions {
  std::string model;  // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::string prompt;
  std::string prompt_file;  // file with one prompt, or NAME.jsonl with {"prompt": text} per line
  std::int64_t tokens = 256;
  bool asked_tokens = false;       // --tokens was given; the default may exceed the model's limit
  std::vector<std::string> stops;  // texts or special tokens; output ends before the first one
  std::int64_t batch = 8;          // prompts of a NAME.jsonl generated together
  std::string tokenizer;           // see open_tokenizer; empty: the tokenizer of the model
  Sampling sampling;
  ModelRanksOptions ranks;
};

std::vector<PromptText> texts_of(const GenerateOptions& options, InputDefects& odd) {
  if (options.prompt_file.empty()) return {{options.prompt, "--prompt"}};
  return read_prompts(options.prompt_file, odd);
}

void warn_of_fewer(const GenerateOptions& options, const EncodedPrompts& encoded,
                   std::int64_t positions) {
  const auto& prompts = encoded.prompts;
  if (const auto& full = encoded.full; full.count > 0)
    log_warning(full.count, full.count == 1 ? " prompt fills" : " prompts fill", " all ", positions,
                " positions of the model, so nothing is generated for ",
                full.count == 1 ? "it" : "them", "; the first: ", full.first);
  const auto fewer = std::ranges::count_if(prompts, [&](const Prompt& prompt) {
    return 0 < prompt.tokens && prompt.tokens < options.tokens;
  });
  if (!options.asked_tokens || fewer == 0) return;
  log_warning("the model has ", positions, " positions: generating ",
              prompts.size() == 1 ? str("only ", prompts[0].tokens, " tokens after the prompt")
                                  : str("fewer tokens after ", fewer, " of the prompts"));
}

// Output writes the generated text: streamed for a single prompt, or one JSON line per finished
// prompt.
class Output {
 public:
  Output(const GenerateOptions& options, const Tokenizer& tokenizer,
         std::span<const PromptText> texts, std::span<const Prompt> prompts, World& world)
      : texts_(texts),
        prompts_(prompts),
        stops_(tokenizer, options.stops),
        streams_(!holds_prompt_lines(options.prompt_file)),
        world_(world) {
    for (const PromptText& text : texts)
      answers_.emplace_back(tokenizer, stops_, /*drops_first_space=*/text.text.empty());
    if (streams_) write(texts.front().text);
  }

  // Adds a token to the text of a prompt. Returns true if generation continues.
  bool take(std::size_t prompt, std::int32_t token) {
    ++generated_;
    const bool goes_on = answers_[prompt].take(token);
    if (streams_) write(answers_[prompt].text().settled());
    return goes_on;
  }

  // Writes the rest of prompts [first, first + count), which have ended.
  void finish(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      if (streams_) {
        write(answers_[i].text().rest());
        write("\n");
        continue;
      }
      Json line;
      line.set("prompt", texts_[i].text);
      line.set("text", replaced_utf8(answers_[i].text().text()));
      line.set("tokens", answers_[i].tokens());
      line.set("finish", prompts_[i].tokens > 0 ? name(answers_[i].finish()) : "full");
      write(line.dump() + "\n");
    }
  }

  std::int64_t generated() const { return generated_; }

  // True if rank 0 wrote all output so far; it logs the error otherwise. All ranks call this, so
  // that all end normally: mpirun may hang after an abort.
  bool is_written() {
    if (world_.size() == 1) return true;
    const bool good = world_.exchange(failure_).front().empty();
    if (!failure_.empty()) log_line(LogLevel::error, failure_);
    return good;
  }

 private:
  static const char* name(Answer::Finish finish) {
    return finish == Answer::Finish::length ? "length"
           : finish == Answer::Finish::end  ? "end"
                                            : "stop";
  }

  void write(std::string_view text) {
    if (world_.rank() != 0 || !failure_.empty()) return;
    try {
      write_output(text);
    } catch (const OutputError& error) {
      if (world_.size() == 1) throw;
      failure_ = error.what();
    }
  }

  std::span<const PromptText> texts_;
  std::span<const Prompt> prompts_;
  Stops stops_;
  bool streams_;
  World& world_;
  std::string failure_;  // error of standard output; empty: none
  std::vector<Answer> answers_;
  std::int64_t generated_ = 0;
};

// Calls work(first, prompts) for each batch.
template <class Work>
void for_each_batch(std::span<const Prompt> prompts, std::int64_t batch, Work&& work) {
  const auto most = static_cast<std::size_t>(batch);
  for (std::size_t first = 0; first < prompts.size(); first += most)
    work(first, prompts.subspan(first, std::min(most, prompts.size() - first)));
}

int generate_on(const GenerateOptions& options, const ModelRanks& ranks, Stream& stream) {
  if (ranks.mesh.size(Axis::replicate) > 1)
    throw ConfigError(
        str("generate: ", ranks.world.size(), " ranks were started, expected ",
            options.ranks.tensor * options.ranks.shard,
            " (--tensor x --shard), because more ranks would generate the same text"));
  // A single rank ends by SIGPIPE, as usual. Several ranks have to tell each other.
  if (ranks.world.size() > 1) std::signal(SIGPIPE, SIG_IGN);
  const auto source = find_model(options.model);
  const auto tokenizer = open_tokenizer_of(source, options.tokenizer);
  InputDefects odd;
  const auto texts = texts_of(options, odd);
  const auto encoded =
      encode_prompts(texts, options.tokens, *tokenizer, source.model.max_positions, odd);
  const std::span<const Prompt> prompts = encoded.prompts;
  warn_of_fewer(options, encoded, source.model.max_positions);
  LoadedModel loaded(
      source, ranks, stream, "use a smaller model, fewer --tokens or a smaller --batch",
      [&](Inference& model) {
        for_each_batch(prompts, options.batch, [&](std::size_t, std::span<const Prompt> some) {
          generate(model.context(), model.transformer(), model.arenas().pinned, some,
                   options.sampling, [](std::size_t, std::int32_t) { return true; });
        });
      });
  Inference& model = loaded.inference();

  const auto begin = std::chrono::steady_clock::now();
  Output output(options, *tokenizer, texts, prompts, ranks.world);
  bool written = output.is_written();
  for_each_batch(prompts, options.batch, [&](std::size_t first, std::span<const Prompt> some) {
    if (!written) return;
    in_context(
        [&] {
          generate(model.context(), model.transformer(), model.arenas().pinned, some,
                   options.sampling, [&](std::size_t prompt, std::int32_t token) {
                     return output.take(first + prompt, token);
                   });
        },
        source.path.string());
    output.finish(first, some.size());
    written = output.is_written();
  });
  if (!written) return OutputError("").exit_code();
  warn_of(odd, MissingBytes::drop);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  log_info(output.generated(), " tokens in ", human_seconds(elapsed.count()), ", ",
           human_count(static_cast<double>(output.generated()) / elapsed.count()), " tok/s, from ",
           source.path.string());
  return 0;
}

// Streams the prompt and its continuation to standard output. For a NAME.jsonl it writes a line
// {"prompt", "text", "tokens", "finish": "end", "stop", "length" or "full"} per prompt.
int run_generate(const GenerateOptions& options) {
  const auto& s = options.sampling;
  std::string stops;
  for (const auto& stop : options.stops)
    stops += str(stop.size(), " ", stop, " ");
  const Fields settings{{"MODEL", options.model},
                        {"--prompt", options.prompt},
                        {"--prompt-file", options.prompt_file},
                        {"--tokens", std::to_string(options.tokens)},
                        {"--stop", stops},
                        {"--batch", std::to_string(options.batch)},
                        {"--tokenizer", options.tokenizer},
                        {"sampling", str(s.temperature, " ", s.top_k, " ", s.top_p, " ", s.seed)}};
  return on_model_ranks(options.ranks, settings, [&](const ModelRanks& ranks, Stream& stream) {
    return generate_on(options, ranks, stream);
  });
}

}  // namespace

Verb generate_verb() {
  auto o = std::make_shared<GenerateOptions>();
  std::vector<Flag> flags{
      {"model", &o->model, "Model", "MODEL", kModelForms, kRequired},
      {"--prompt", &o->prompt, "Text", "TEXT", "text to continue"},
      {"--prompt-file", &o->prompt_file, "Text", "FILE",
       "file with the prompt, or NAME.jsonl with {\"prompt\": TEXT} per line, each answered by a "
       "JSON line",
       kRule.excluding({"--prompt"})},
      {"--stop", &o->stops, "Text", "TEXT",
       "end the output before this text or special token; if repeated, before the first match",
       kRule.repeating()},
      {"--batch", &o->batch, "Text", "N", "number of prompts of a NAME.jsonl generated together",
       kWithDefault.within(1, 65536)},
      {"--tokenizer", &o->tokenizer, "Text", "WHAT", kTokenizerHelp},
      {"--tokens", &o->tokens, "Text", "N", "maximum number of generated tokens per prompt",
       kWithDefault.within(0).telling(&o->asked_tokens)}};
  std::ranges::move(sampling_flags(o->sampling), std::back_inserter(flags));
  std::ranges::move(ranks_flags(o->ranks), std::back_inserter(flags));
  return {"generate", "generate text that continues a prompt", std::move(flags),
          [o] { return run_generate(*o); }};
}

}  // namespace lockstep
