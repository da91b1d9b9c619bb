#include "launch/data_verb.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <pthread.h>
#include <thread>
#include <unistd.h>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/start_thread.h"
#include "core/thread_pool.h"
#include "core/units.h"
#include "data/dataset.h"
#include "data/pack/convert.h"
#include "data/pack/inspect.h"
#include "data/pack/output_directory.h"
#include "data/pack/pack.h"
#include "data/pack/pack_directory.h"
#include "data/pack/verify.h"
#include "data/remote/host_shards.h"
#include "data/source.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "launch/verb.h"
#include "train/interop/model_tokenizer.h"

namespace lockstep {
namespace {

constexpr int kDamaged = 65;

// Parses "0.5%" or "0.005".
double share_of(const std::string& text) {
  if (text.empty()) return 0;
  const bool percent = text.back() == '%';
  const char* end = text.data() + text.size() - (percent ? 1 : 0);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), end, value);
  if (percent) value /= 100;
  if (parsed.ec != std::errc() || parsed.ptr != end || !(0 < value && value < 1))
    throw UsageError(
        str("--validation ", text, ": expected a share of documents, such as 0.5% or 0.005"));
  return value;
}

// Replaces the C escapes \n \r \t \0 \\ \xHH.
std::string unescape(const std::string& text) {
  const auto fail = [&] {
    throw UsageError(
        str("--document-separator ", text, R"(: expected text with \n \r \t \0 \\ \xHH)"));
  };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      plain += text[i];
      continue;
    }
    if (++i == text.size()) fail();
    switch (text[i]) {
      case 'n': plain += '\n'; break;
      case 'r': plain += '\r'; break;
      case 't': plain += '\t'; break;
      case '0': plain += '\0'; break;
      case '\\': plain += '\\'; break;
      case 'x': {
        const char* digits = text.data() + i + 1;
        unsigned byte = 0;
        if (i + 2 >= text.size() || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
          fail();
        plain += static_cast<char>(byte);
        i += 2;
        break;
      }
      default: fail();
    }
  }
  return plain;
}

// A directory that is removed at the end of its scope.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    auto name = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      fail_io(name, "cannot create (set TMPDIR to use another directory)", errno);
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Handles Ctrl-C and SIGTERM, unless they are ignored. A thread calls last_words() and exits the
// process with 130 or 75 (may be restarted). The working code therefore need not poll for signals.
class EndBySignal {
 public:
  explicit EndBySignal(std::function<void()> last_words) : last_words_(std::move(last_words)) {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM}) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&signals_, signal);
    }
    sigaddset(&signals_, SIGUSR2);                            // sent by the destructor
    pthread_sigmask(SIG_BLOCK, &signals_, &signals_before_);  // inherited by later threads
    try {
      thread_ = start_thread([this] { wait(); });
    } catch (const TransientError&) {  // without the thread, a signal ends it without a warning
      pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
    }
  }
  EndBySignal(const EndBySignal&) = delete;
  EndBySignal& operator=(const EndBySignal&) = delete;
  ~EndBySignal() {
    if (!thread_.joinable()) return;
    is_done_ = true;
    pthread_kill(thread_.native_handle(), SIGUSR2);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
  }

 private:
  void wait() {
    int signal = 0;
    do {
      if (sigwait(&signals_, &signal) != 0) return;
      if (is_done_) return;
    } while (signal == SIGUSR2);
    last_words_();
    _exit(signal == SIGINT ? 130 : 75);
  }

  std::function<void()> last_words_;
  sigset_t signals_{}, signals_before_{};
  std::atomic<bool> is_done_ = false;
  std::thread thread_;
};

void say_what_packing_leaves(const std::filesystem::path& out) {
  const auto work = PackDirectory::work_of(output_path(out));
  if (!path_exists(work))
    log_warning("stopped");
  else if (path_exists(work / "progress.json"))
    log_warning("stopped; rerun the same command to resume from ", work.string(),
                ", or remove it to start over");
  else
    log_warning("stopped; ", work.string(),
                " has no progress to resume from: the same command starts over");
}

void remove_what_converting_leaves(const std::filesystem::path& out) {
  const std::filesystem::path work = str(output_path(out).string(), ".tmp-", getpid());
  std::error_code error;
  for (int tries = 0; tries < 10 && path_exists(work); ++tries)  // other threads still write to it
    std::filesystem::remove_all(work, error);
  log_warning("stopped; ", path_exists(work) ? "remove the partial output " : "removed ",
              work.string());
}

// The tokenizer of the dataset; nullptr: tokens are shown as ids.
std::unique_ptr<Tokenizer> own_tokenizer(const Dataset& dataset, ShardFiles& files) {
  if (dataset.tokenizer_hash() == ByteTokenizer().about().hash) return open_tokenizer("bytes");
  const auto warn = [](const auto&... why) {
    log_warning("tokens are shown as ids because the tokenizer is not usable: ", why...);
  };
  const TemporaryDirectory directory;
  auto place = dataset.lists().front().directory;  // set for a single shard too
  if (dataset.is_distant()) {
    const auto fetched = directory.path() / "tokenizer";
    fetch_tokenizer(place.string(), files, fetched);
    place = fetched;
  }
  const auto file = tokenizer_in(place);
  if (!file) return nullptr;
  try {
    auto tokenizer = open_tokenizer(file->string());
    const std::int64_t ids = tokenizer->about().vocabulary, expected = dataset.format().vocabulary;
    if (expected == 0 || ids == expected) return tokenizer;
    warn("it has ", ids, " tokens, the dataset's ", expected);
  } catch (const DataError& error) {
    warn(error.what());
  }
  return nullptr;
}

// Warns if the text is shown by another tokenizer than the dataset was packed with: its ids would
// be shown as other text.
void warn_of_other_hash(const std::string& path, const Dataset& dataset,
                        const Tokenizer& tokenizer) {
  const auto& made_with = dataset.tokenizer_hash();
  if (!made_with.empty() && made_with != tokenizer.about().hash)
    log_warning(path, " was packed with tokenizer ", dataset.format().name, " (", made_with,
                "), but the text is shown with ", tokenizer.about().name, " (",
                tokenizer.about().hash, ")");
}

// Downloads every byte, without the shard cache. At most two shards are on the local disk at once.
Verification verify_distant(const std::string& path) {
  const TemporaryDirectory directory;
  ShardCache::Config cache{.directory = directory.path()};
  {
    HostShards look(cache, process_environment());
    cache.most_bytes = look.room_of({path}, 2);
  }
  HostShards files(cache, process_environment());
  return verify(path, &files);
}

void tell_not_verified(const std::string& path) {
  std::cout << path << ": not verified because nothing was read\n";
}

// Prints the result, and returns the exit code.
int tell(const std::string& path, const Verification& found) {
  for (const auto& damage : found.damages)
    log_line(LogLevel::error, damage);
  if (found.shards == 0 && found.damages.empty()) {
    tell_not_verified(path);
    return 0;
  }
  std::cout << path << ": " << found.shards << (found.shards == 1 ? " shard, " : " shards, ")
            << with_commas(found.tokens) << " tokens, "
            << (!found.damages.empty() ? "DAMAGED"
                : found.ended          ? "no damage found"
                : found.hashed         ? "intact"
                                       : "sizes and tokens are valid (no hashes to check)")
            << (found.ended ? "; the other shards could not be checked\n" : "\n");
  return found.damages.empty() ? 0 : kDamaged;
}

}  // namespace

int data_pack(const DataPackOptions& options) {
  if (options.inputs.empty())
    throw UsageError("no input to pack; name files or directories, or - for standard input");
  if (options.out.empty()) throw UsageError("--out: expected the directory of the new dataset");
  const auto begin = std::chrono::steady_clock::now();
  const EndBySignal end([&] { say_what_packing_leaves(options.out); });
  const auto packed = pack({.inputs = {options.inputs.begin(), options.inputs.end()},
                            .out = options.out,
                            .document_separator = unescape(options.document_separator),
                            .validation_share = share_of(options.validation),
                            .shard_tokens = options.shard_tokens,
                            .tokenizer = options.tokenizer,
                            .document_token = options.document_token,
                            .field = options.field,
                            .prompt_field = options.prompt_field,
                            .response_field = options.response_field,
                            .messages_field = options.messages_field,
                            .chat_template = options.chat_template,
                            .plain_text = options.plain_text,
                            .missing_bytes = missing_bytes(options.missing_bytes),
                            .threads = options.threads});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  for (const auto& [path, manifest, text_bytes] : packed)
    std::cout << path.string() << ": " << with_commas(manifest.tokens()) << " tokens in "
              << with_commas(manifest.documents())
              << (manifest.documents() == 1 ? " document, " : " documents, ")
              << manifest.shards.size() << (manifest.shards.size() == 1 ? " shard\n" : " shards\n");
  if (packed.size() > 1) {
    const auto held_out = packed[1].manifest.documents();
    log_info("held out ", with_commas(held_out), " of ",
             with_commas(packed[0].manifest.documents() + held_out), " documents");
  }
  if (seconds.count() < 1) return 0;
  const auto size = static_cast<double>(packed.front().text_bytes);
  log_info("packed ", human_bytes(size), " in ", human_seconds(seconds.count()), ", ",
           human_bytes(size / seconds.count()), "/s");
  return 0;
}

int data_inspect(const DataInspectOptions& options) {
  HostShards files({}, process_environment());
  const Dataset dataset({options.dataset}, &files);
  const auto tokenizer =
      options.tokenizer.empty() ? own_tokenizer(dataset, files) : open_tokenizer(options.tokenizer);
  if (tokenizer != nullptr) warn_of_other_hash(options.dataset, dataset, *tokenizer);
  std::cout << inspect(dataset, tokenizer.get(), options.at, options.count);
  return 0;
}

int data_convert(const DataConvertOptions& options) {
  const EndBySignal end([&] { remove_what_converting_leaves(options.out); });
  const auto done = convert({.inputs = options.inputs,
                             .out = options.out,
                             .to = output_kind(options.to),
                             .name = options.name,
                             .shard_tokens = options.shard_tokens,
                             .tokenizer = options.tokenizer,
                             .vocabulary = options.vocabulary});
  for (const auto& lost : done.lost)
    log_warning("format ", options.to, " does not store ", lost);
  if (!done.replaced.empty()) log_warning(done.replaced);
  std::cout << options.out << ": " << with_commas(done.tokens) << " tokens in "
            << with_commas(done.documents) << (done.documents == 1 ? " document, " : " documents, ")
            << done.shards << (done.shards == 1 ? " shard\n" : " shards\n");
  return 0;
}

int data_verify(const std::vector<std::string>& datasets) {
  int exit_code = 0;
  std::exception_ptr ended;  // the first access error
  for (const auto& path : datasets) {
    Verification found;
    try {
      found = is_remote(path) ? verify_distant(path) : verify(path);
    } catch (const AccessError&) {
      found.ended = std::current_exception();
    } catch (const DataError& error) {  // the expected contents are unknown
      log_line(LogLevel::error, error.what());
      tell_not_verified(path);
      exit_code = kDamaged;
      continue;
    }
    exit_code = std::max(exit_code, tell(path, found));
    if (!ended) ended = found.ended;
  }
  if (ended) std::rethrow_exception(ended);
  return exit_code;
}

namespace {

constexpr double kMostInt = std::numeric_limits<std::int32_t>::max();

Verb pack_verb() {
  auto o = std::make_shared<DataPackOptions>();
  const auto separator = [o](const std::string& text) {
    if (text.empty())
      throw UsageError(
          "--document-separator: expected text; without the flag each file is a document");
    o->document_separator = text;
  };
  return {
      "pack",
      "tokenize text into a dataset",
      {{"input", &o->inputs, "Text", "INPUT",
        "text or JSON lines, plain or compressed by gzip or zstd: files, directories or quoted "
        "patterns ('*.jsonl.zst'); -: standard input",
        kRequired},
       {"--document-separator", separator, "Text", "TEXT",
        "text between documents, such as '\\n\\n', or '\\r\\n\\r\\n' for files with CRLF lines "
        "(default: each file is a document)"},
       {"--field", &o->field, "Text", "NAME",
        "JSON member that holds the document; meta.text for a nested member (default: text, in "
        "files named *.jsonl, *.ndjson, *.jl or *.json.gz; other files are plain text)"},
       {"--plain-text", &o->plain_text, "Text", "",
        "treat names of special tokens (such as <|endoftext|>), JSON and tables as ordinary text "
        "(default: encode special tokens; reject JSON and tables)"},
       {"--missing-bytes", &o->missing_bytes, "Text", "refuse|drop|replace",
        "text with a byte for which the tokenizer has no token: reject the text, drop the byte (as "
        "transformers does), or replace the character by U+FFFD",
        kWithDefault},
       {"--prompt-field", &o->prompt_field, "Responses", "NAME",
        "JSON member with the prompt, which is masked from the loss"},
       {"--response-field", &o->response_field, "Responses", "NAME",
        "JSON member with the response, which the model learns"},
       {"--messages-field", &o->messages_field, "Responses", "NAME",
        "JSON member with a conversation, a list of {\"role\", \"content\"}; the model learns the "
        "assistant messages"},
       {"--chat-template", &o->chat_template, "Responses", "NAME",
        "format of conversations: chatml, llama3, or a file (docs/packing.md)"},
       {"--out", &o->out, "Dataset", "DIR",
        "directory of the dataset; must not exist yet. Progress is kept in DIR.tmp: rerun the same "
        "command to resume",
        kRequired},
       {"--tokenizer", &o->tokenizer, "Dataset", "bytes|PATH",
        "bytes, a tokenizer file (tokenizer.json, tekken.json, a rank file), or a directory with "
        "one",
        kWithDefault},
       {"--document-token", &o->document_token, "Dataset", "TOKEN",
        "token before each document (default: from the tokenizer files)"},
       {"--validation", &o->validation, "Dataset", "SHARE",
        "share of documents held out in DIR/validation, such as 0.5% or 0.005 (0.5 means half); "
        "the rest goes to DIR/train"},
       {"--shard-tokens", &o->shard_tokens, "Dataset", "TOKENS", "maximum tokens per shard file",
        kWithDefault.within(1, kMostInt)},
       {"--threads", &o->threads, "Dataset", "N",
        "number of tokenizer threads (default: one per available CPU core)",
        kRule.within(1, static_cast<double>(most_threads()))}},
      [o] { return data_pack(*o); }};
}

Verb inspect_verb() {
  auto o = std::make_shared<DataInspectOptions>();
  return {"inspect",
          "describe a dataset and show some of its tokens",
          {{"dataset", &o->dataset, "Dataset", "DATASET", "directory of a dataset, or a shard",
            kRequired},
           {"--at", &o->at, "Dataset", "N",
            "show token number N, marked, in its document (default: show the first tokens)",
            kRule.within(0)},
           {"--count", &o->count, "Dataset", "N",
            "number of tokens to show; with --at, up to this many before the token too",
            kWithDefault.within(0)},
           {"--tokenizer", &o->tokenizer, "Dataset", "bytes|PATH",
            "tokenizer that shows tokens as text (default: the one in the dataset's directory)"}},
          [o] { return data_inspect(*o); }};
}

Verb convert_verb() {
  auto o = std::make_shared<DataConvertOptions>();
  return {"convert",
          "convert a dataset to another shard format",
          {{"input", &o->inputs, "Dataset", "DATASET",
            "directories, shards or patterns of any supported format", kRequired},
           {"--to", &o->to, "Dataset", "FORMAT", "lockstep, llmc, nanogpt, megatron or datatrove",
            kRequired},
           {"--out", &o->out, "Dataset", "DIR", "output directory; must not exist yet", kRequired},
           {"--name", &o->name, "Dataset", "NAME", "prefix of file names", kWithDefault},
           {"--shard-tokens", &o->shard_tokens, "Dataset", "TOKENS",
            "tokens per file (nanogpt: one file)", kWithDefault.within(1, kMostInt)},
           {"--tokenizer", &o->tokenizer, "Dataset", "bytes|PATH",
            "tokenizer of the input, if the input does not name it"},
           {"--vocabulary", &o->vocabulary, "Dataset", "N",
            "vocabulary size, if --tokenizer is not given (default: one more than the largest id)",
            kRule.within(1, kMostInt)}},
          [o] { return data_convert(*o); }};
}

Verb verify_verb() {
  auto datasets = std::make_shared<std::vector<std::string>>();
  return {"verify",
          "read every byte of datasets and list all damage",
          {{"dataset", datasets.get(), "Dataset", "DATASET", "directories or shards", kRequired}},
          [datasets] { return data_verify(*datasets); }};
}

}  // namespace

Verb data_verb() {
  return {"data",
          "make, inspect, convert and verify datasets of tokens",
          {},
          {},
          {pack_verb(), inspect_verb(), convert_verb(), verify_verb()}};
}

}  // namespace lockstep
