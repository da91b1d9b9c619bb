#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>

#include "core/json.h"
#include "core/log.h"
#include "core/output.h"
#include "core/units.h"
#include "core/utf8.h"
#include "dist/topology_here.h"
#include "launch/verb.h"
#include "model/generate.h"
#include "train/infer/growing_text.h"
#include "train/infer/prompts.h"
#include "train/interop/model_source.h"
#include "train/interop/model_tokenizer.h"
#include "train/step/memory.h"

namespace lockstep {
namespace {

struct GenerateOptions {
  std::string model;  // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::string prompt;
  std::string prompt_file;  // instead: the text of one, or of NAME.jsonl {"prompt": text} a line
  std::int64_t tokens = 256;
  bool asked_tokens = false;       // not the default, which may be more than the model has room for
  std::vector<std::string> stops;  // texts or special tokens; ends in front of the first
  std::int64_t batch = 8;          // of a NAME.jsonl, generated together
  std::string tokenizer;           // see open_tokenizer; empty: the model's
  Sampling sampling;
  ModelRanksOptions ranks;
};

std::vector<PromptText> texts_of(const GenerateOptions& options, OddInput& odd) {
  if (options.prompt_file.empty()) return {{options.prompt, "--prompt"}};
  return read_prompts(options.prompt_file, odd);
}

void warn_of_fewer(const GenerateOptions& options, const EncodedPrompts& encoded,
                   std::int64_t positions) {
  const auto& prompts = encoded.prompts;
  if (const auto& full = encoded.full; full.count > 0)
    log_warning(full.count, full.count == 1 ? " prompt leaves" : " prompts leave", " none of the ",
                "model's ", positions, " positions: nothing is generated after ",
                full.count == 1 ? "it" : "them", "; the first: ", full.first);
  const auto fewer = std::ranges::count_if(prompts, [&](const Prompt& prompt) {
    return 0 < prompt.tokens && prompt.tokens < options.tokens;
  });
  if (!options.asked_tokens || fewer == 0) return;
  log_warning("the model has positions for ", positions, " tokens: generating ",
              prompts.size() == 1 ? str(prompts[0].tokens, " behind the prompt")
                                  : str("fewer behind ", fewer, " of the prompts"));
}

// What comes of the prompts: written as it comes, or a line for each that has ended.
class Output {
 public:
  Output(const GenerateOptions& options, const Tokenizer& tokenizer,
         std::span<const PromptText> texts, std::span<const Prompt> prompts, World& world)
      : tokenizer_(tokenizer),
        texts_(texts),
        streams_(!holds_prompt_lines(options.prompt_file)),
        world_(world) {
    for (const Prompt& prompt : prompts)
      answers_.push_back({.text = GrowingText(options.stops),
                          .finish = prompt.tokens > 0 ? kLength.data() : "full"});
    for (std::int32_t id = 0; id < tokenizer.about().vocabulary; ++id)
      if (tokenizer.is_special(id) && std::ranges::count(options.stops, tokenizer.bytes_of(id)) > 0)
        stop_tokens_.push_back(id);
    if (streams_) write(texts.front().text);
  }

  // Whether the prompt's text goes on.
  bool take(std::size_t prompt, std::int32_t token) {
    Answer& answer = answers_[prompt];
    ++answer.tokens;
    ++generated_;
    const auto& about = tokenizer_.about();
    if (token == about.end_token || token == about.document_token) {
      answer.finish = "end";
      return false;
    }
    auto bytes = tokenizer_.bytes_of(token);
    if (about.drops_first_space && answer.tokens == 1 && texts_[prompt].text.empty() &&
        bytes.starts_with(' '))
      bytes.remove_prefix(1);
    const bool goes_on = tokenizer_.is_special(token) ? std::ranges::count(stop_tokens_, token) == 0
                                                      : answer.text.append(bytes);
    if (!goes_on) answer.finish = "stop";
    if (streams_) write(answer.text.settled());
    return answer.finish == kLength;
  }

  // These have ended.
  void finish(std::size_t first, std::size_t count) {
    for (std::size_t i = first; i < first + count; ++i) {
      if (streams_) {
        write(answers_[i].text.rest());
        write("\n");
        continue;
      }
      Json line;
      line.set("prompt", texts_[i].text);
      line.set("text", replaced_utf8(answers_[i].text.text()));
      line.set("tokens", answers_[i].tokens);
      line.set("finish", answers_[i].finish);
      write(line.dump() + "\n");
    }
  }

  std::int64_t generated() const { return generated_; }

  // Of several ranks, whether rank 0 could write all so far; it says why not. All call it, and all
  // end in order: aborted, mpirun itself may hang.
  bool is_written() {
    if (world_.size() == 1) return true;
    const bool good = world_.exchange(failure_).front().empty();
    if (!failure_.empty()) log_line(LogLevel::error, failure_);
    return good;
  }

 private:
  static constexpr std::string_view kLength = "length";
  struct Answer {
    GrowingText text;
    std::int64_t tokens = 0;
    const char* finish = kLength.data();
  };

  void write(std::string_view text) {
    if (world_.rank() != 0 || !failure_.empty()) return;
    try {
      write_output(text);
    } catch (const OutputError& error) {
      if (world_.size() == 1) throw;
      failure_ = error.what();
    }
  }

  const Tokenizer& tokenizer_;
  std::span<const PromptText> texts_;
  bool streams_;
  World& world_;
  std::string failure_;  // of standard output
  std::vector<Answer> answers_;
  std::vector<std::int32_t> stop_tokens_;  // special tokens that are stop strings
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
    throw ConfigError(str("all ranks generate the same: start as many as --tensor x --shard, ",
                          options.ranks.tensor * options.ranks.shard));
  // Alone it ends as other programs do whose output nobody reads any more; others must hear of it.
  if (ranks.world.size() > 1) std::signal(SIGPIPE, SIG_IGN);
  const auto source = find_model(options.model);
  const auto tokenizer = open_tokenizer_of(source, options.tokenizer);
  OddInput odd;
  const auto texts = texts_of(options, odd);
  const auto encoded =
      encode_prompts(texts, options.tokens, *tokenizer, source.model.max_positions, odd);
  const std::span<const Prompt> prompts = encoded.prompts;
  warn_of_fewer(options, encoded, source.model.max_positions);
  const Inference::Config config{.model = source.model};
  const auto bytes =
      measure_inference(config, ranks.mesh, /*rank=*/0, stream, [&](Inference& model) {
        for_each_batch(prompts, options.batch, [&](std::size_t, std::span<const Prompt> some) {
          generate(model.context(), model.transformer(), model.arenas().pinned, some,
                   options.sampling, [](std::size_t, std::int32_t) { return true; });
        });
      });
  room_here(stream.device(), static_cast<int>(ranks_here(ranks.world).size()))
      .require(bytes, "generate with a smaller model, fewer --tokens or a smaller --batch");
  Arenas arenas(stream.device(), bytes, ranks.world.allocate(bytes.device));
  Inference model(config, stream, arenas, ranks.comms());
  load_weights(source, model.params(), stream);

  const auto begin = std::chrono::steady_clock::now();
  Output output(options, *tokenizer, texts, prompts, ranks.world);
  bool written = output.is_written();
  for_each_batch(prompts, options.batch, [&](std::size_t first, std::span<const Prompt> some) {
    if (!written) return;
    in_context(
        [&] {
          generate(model.context(), model.transformer(), arenas.pinned, some, options.sampling,
                   [&](std::size_t prompt, std::int32_t token) {
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

// Writes the prompt and what follows it to standard output, each character as it comes; of a
// NAME.jsonl a line {"prompt", "text", "tokens", "finish": "end", "stop" or "length"} for each.
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
  auto& sampling = o->sampling;
  std::vector<Flag> flags{
      {"model", &o->model, "Model", "MODEL", kModelForms, kRequired},
      {"--prompt", &o->prompt, "Text", "TEXT", "text to go on from"},
      {"--prompt-file", &o->prompt_file, "Text", "FILE",
       "a file of it; of NAME.jsonl {\"prompt\": TEXT} a line, each answered by a line of JSON",
       kRule.excluding({"--prompt"})},
      {"--stop", &o->stops, "Text", "TEXT",
       "end what is written in front of this text or special token, where it comes up; given "
       "several times: of the first that comes up",
       kRule.repeating()},
      {"--batch", &o->batch, "Text", "N", "prompts of a NAME.jsonl at once",
       kWithDefault.within(1, 65536)},
      {"--tokenizer", &o->tokenizer, "Text", "WHAT", kTokenizerHelp},
      {"--tokens", &o->tokens, "Text", "N", "to generate",
       kWithDefault.within(0).telling(&o->asked_tokens)},
      {"--temperature", &sampling.temperature, "Sampling", "X", "0: always the likeliest token",
       kWithDefault.within(0)},
      {"--top-k", &sampling.top_k, "Sampling", "K", "among the k likeliest; 0: all",
       kWithDefault.within(0)},
      {"--top-p", &sampling.top_p, "Sampling", "P", "among the likeliest that reach share p",
       kWithDefault.within(0, 1)},
      {"--seed", &sampling.seed, "Sampling", "N", "of the random numbers", kWithDefault.within(0)}};
  std::ranges::move(ranks_flags(o->ranks), std::back_inserter(flags));
  return {"generate", "continue a text", std::move(flags), [o] { return run_generate(*o); }};
}

}  // namespace lockstep
