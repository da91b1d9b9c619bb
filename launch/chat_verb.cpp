// lockstep chat: reads messages from standard input and streams the answers.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <poll.h>
#include <system_error>
#include <unistd.h>

#include "core/log.h"
#include "core/output.h"
#include "core/utf8.h"
#include "launch/verb.h"
#include "model/generate.h"
#include "train/infer/conversation.h"
#include "train/infer/loaded_model.h"
#include "train/interop/model_source.h"
#include "train/interop/model_tokenizer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMostContext = 8192;  // unless --context is given: bounds the KV cache

struct ChatOptions {
  std::string model;  // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::string system, chat_template, tokenizer;
  std::int64_t tokens = 512;
  std::optional<std::int64_t> context;
  Sampling sampling;
  ModelRanksOptions ranks;
};

volatile std::sig_atomic_t interrupted = 0;

// While it exists, Ctrl-C sets `interrupted`.
class Interrupts {
 public:
  Interrupts() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = SA_RESTART;  // poll() is interrupted nevertheless
    sigaction(SIGINT, &action, &before_);
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts() { sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

// Lines of standard input. On a terminal each follows a prompt.
class Lines {
 public:
  enum class Status : std::uint8_t { line, end, stopped };

  Status next(std::string& line) {
    show_prompt();
    std::size_t end = 0;
    while ((end = read_.find('\n')) == std::string::npos) {
      if (ended_ && read_.empty()) return Status::end;
      if (ended_) read_ += '\n';
      if (!ended_ && !receive()) {
        if (!is_terminal_) return Status::stopped;
        read_.clear();  // the terminal has discarded its line too
        write_output("\n");
        show_prompt();
      }
    }
    line = read_.substr(0, end);
    if (line.ends_with('\r')) line.pop_back();
    read_.erase(0, end + 1);
    return Status::line;
  }

  bool is_terminal() const { return is_terminal_; }

 private:
  void show_prompt() {
    interrupted = 0;
    if (is_terminal_) write_output("> ");
  }

  // Waits for input. Returns false after Ctrl-C.
  bool receive() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const bool is_ready = interrupted == 0 && poll(&input, 1, -1) >= 0;
    if (interrupted != 0) return false;
    if (!is_ready && errno == EINTR) return true;
    char buffer[4096];
    const auto count = read(STDIN_FILENO, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) return true;
    if (count < 0)
      throw_io_error(errno, str("standard input: ", std::generic_category().message(errno)));
    ended_ = count == 0;
    read_.append(buffer, static_cast<std::size_t>(count));
    return true;
  }

  std::string read_;  // bytes behind the last line
  bool ended_ = false;
  bool is_terminal_ = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
};

ChatTemplate template_for(const ChatOptions& options, const ModelSource& source) {
  if (!options.chat_template.empty()) return chat_template(options.chat_template);
  constexpr const char* kRemedy =
      "pass --template chatml, --template llama3, or --template FILE with the texts around each "
      "role (docs/packing.md)";
  const auto found = model_template(tokenizer_directory_of(source));
  if (!found)
    throw UsageError(str(source.path.string(), ": found no chat template with this model; ",
                         kRemedy, ". To continue plain text, use lockstep generate"));
  const auto known = recognised_template(found->text);
  if (known.empty())
    throw UsageError(
        str(found->path.string(), ": expected the markers of chatml or llama3; ", kRemedy));
  log_info("chat template ", known, ", by the markers in ", found->path.string());
  return chat_template(known);
}

// Calls work(generator) for a text of at most `context` tokens.
template <class Work>
void with_generator(Inference& model, std::int64_t context, Work&& work) {
  auto& arenas = model.arenas();
  const auto step = model.context();
  const Arena::Scope scope(step.scratch), pinned(arenas.pinned);
  Generator generator(step, model.transformer(), arenas.pinned,
                      {.sequences = 1, .capacity = context, .prefill = context});
  work(generator);
}

class Chat {
 public:
  Chat(const ChatOptions& options, const Tokenizer& tokenizer, Conversation& conversation,
       Generator& generator)
      : options_(options),
        tokenizer_(tokenizer),
        conversation_(conversation),
        generator_(generator) {}

  // Returns the exit code.
  int run() {
    const Interrupts interrupts;
    Lines lines;
    if (lines.is_terminal())
      log_info("/reset forgets the conversation, Ctrl-C stops an answer, /quit or Ctrl-D ends");
    std::string line;
    for (auto status = lines.next(line); status != Lines::Status::end; status = lines.next(line)) {
      if (status == Lines::Status::stopped) return 130;
      if (line == "/quit") break;
      if (line == "/reset")
        conversation_.clear();
      else if (line.find_first_not_of(" \t") != std::string::npos)
        answer(line);
    }
    return 0;
  }

 private:
  void answer(const std::string& message) {
    const auto dropped = conversation_.ask(message, options_.tokens);
    if (!dropped)
      return log_warning(
          "the message is longer than the context of the conversation (--context); "
          "it is ignored");
    if (*dropped > 0)
      log_info("little room is left in the context (--context): dropped the oldest ", *dropped,
               *dropped == 1 ? " turn" : " turns");
    const Prompt prompt{.ids = conversation_.ids(),
                        .tokens = std::min(options_.tokens, conversation_.room()),
                        .number = turn_++};
    Answer answer(tokenizer_, conversation_.stops());
    std::vector<std::int32_t> ids;
    generator_.run({&prompt, 1}, options_.sampling, [&](std::size_t, std::int32_t token) {
      ids.push_back(token);
      const bool goes_on = answer.take(token);
      write_output(replaced_utf8(answer.text().settled()));
      return goes_on && interrupted == 0;
    });
    write_output(replaced_utf8(answer.text().rest()) + "\n");
    conversation_.answer(ids, answer.text().text());
  }

  const ChatOptions& options_;
  const Tokenizer& tokenizer_;
  Conversation& conversation_;
  Generator& generator_;
  std::uint64_t turn_ = 0;  // each has its own random numbers
};

int chat_on(const ChatOptions& options, const ModelRanks& ranks, Stream& stream) {
  if (ranks.world.size() > 1)
    throw ConfigError(str("chat: ", ranks.world.size(), " ranks were started, expected one"));
  const auto source = find_model(options.model);
  const auto tokenizer = open_tokenizer_of(source, options.tokenizer);
  const auto context = std::min(options.context.value_or(kMostContext), source.model.max_positions);
  Conversation conversation(*tokenizer, template_for(options, source), options.system, context);
  const Prompt full{.ids = std::vector<std::int32_t>(static_cast<std::size_t>(context))};
  LoadedModel model(source, ranks, stream, "use a smaller model or a smaller --context",
                    [&](Inference& measured) {
                      with_generator(measured, context, [&](Generator& generator) {
                        generator.run({&full, 1}, options.sampling,
                                      [](std::size_t, std::int32_t) { return true; });
                      });
                    });
  int exit_code = 0;
  with_generator(model.inference(), context, [&](Generator& generator) {
    exit_code = in_context([&] { return Chat(options, *tokenizer, conversation, generator).run(); },
                           source.path.string());
  });
  return exit_code;
}

int run_chat(const ChatOptions& options) {
  return on_model_ranks(
      options.ranks, {{"MODEL", options.model}},
      [&](const ModelRanks& ranks, Stream& stream) { return chat_on(options, ranks, stream); });
}

}  // namespace

Verb chat_verb() {
  auto o = std::make_shared<ChatOptions>();
  std::vector<Flag> flags{
      {"model", &o->model, "Model", "MODEL", kModelForms, kRequired},
      {"--tokenizer", &o->tokenizer, "Model", "WHAT", kTokenizerHelp},
      {"--template", &o->chat_template, "Conversation", "NAME",
       "chatml, llama3, or a file with the texts around each role (default: by the markers in the "
       "model's own template)"},
      {"--system", &o->system, "Conversation", "TEXT", "system message before the first turn"},
      {"--context", &o->context, "Conversation", "N",
       "size of the context in tokens; the oldest turns are dropped to make room (default: the "
       "model's positions, at most 8192)",
       kRule.within(16, 1e9)},
      {"--max-tokens", &o->tokens, "Conversation", "N", "maximum number of tokens of an answer",
       kWithDefault.within(1)}};
  std::ranges::move(sampling_flags(o->sampling), std::back_inserter(flags));
  flags.push_back({"--device", &o->ranks.device, "Host", "cpu|cuda", kDeviceHelp});
  flags.push_back(threads_flag(o->ranks.threads));
  return {"chat", "talk to a model that was trained on conversations", std::move(flags),
          [o] { return run_chat(*o); }};
}

}  // namespace lockstep
