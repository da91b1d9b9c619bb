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
#include "data/remote/node_files.h"
#include "data/source.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "launch/verb.h"
#include "train/interop/model_tokenizer.h"

namespace lockstep {
namespace {

constexpr int kDamaged = 65;

// "0.5%" or "0.005".
double share_of(const std::string& text) {
  if (text.empty()) return 0;
  const bool percent = text.back() == '%';
  const char* end = text.data() + text.size() - (percent ? 1 : 0);
  double value = 0;
  const auto parsed = std::from_chars(text.data(), end, value);
  if (percent) value /= 100;
  if (parsed.ec != std::errc() || parsed.ptr != end || !(0 < value && value < 1))
    throw UsageError(str("--validation ", text, ": expected a share of documents, 0.5% or 0.005"));
  return value;
}

// C escapes: \n \r \t \0 \\ \xHH.
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

// A directory that goes again.
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

// Ctrl-C and SIGTERM, unless they are ignored: a thread of its own calls last_words(), and ends the
// process with 130, or 75: it may be started again. So what is at work need not ask.
class EndBySignal {
 public:
  explicit EndBySignal(std::function<void()> last_words) : last_words_(std::move(last_words)) {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM}) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&signals_, signal);
    }
    sigaddset(&signals_, SIGUSR2);                            // ours: it is done
    pthread_sigmask(SIG_BLOCK, &signals_, &signals_before_);  // of threads to come, too
    try {
      thread_ = start_thread([this] { wait(); });
    } catch (const TransientError&) {  // then a signal ends it without a word
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
    log_warning("stopped; ", work.string(),
                " stays, and the same command goes on from there; remove it to begin anew");
  else
    log_warning("stopped; ", work.string(),
                " stays, but holds nothing yet to go on from: the same command begins anew");
}

void remove_what_converting_leaves(const std::filesystem::path& out) {
  const std::filesystem::path work = str(output_path(out).string(), ".tmp-", getpid());
  std::error_code error;
  for (int tries = 0; tries < 10 && path_exists(work); ++tries)  // it is still being written to
    std::filesystem::remove_all(work, error);
  log_warning("stopped; ", work.string(),
              path_exists(work) ? " may be removed" : " is removed, and nothing kept");
}

// nullptr: ids are shown.
std::unique_ptr<Tokenizer> own_tokenizer(const Dataset& dataset, ShardFiles& files) {
  if (dataset.tokenizer_hash() == ByteTokenizer().about().hash) return open_tokenizer("bytes");
  const auto warn = [](const auto&... why) {
    log_warning("tokens are shown as ids, for the tokenizer cannot be used: ", why...);
  };
  const TemporaryDirectory directory;
  auto place = dataset.lists().front().directory;  // also of a single shard
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

// Ids of one tokenizer are other text by another, as many as they are.
void warn_of_other_hash(const std::string& path, const Dataset& dataset,
                        const Tokenizer& tokenizer) {
  const auto& made_with = dataset.tokenizer_hash();
  if (!made_with.empty() && made_with != tokenizer.about().hash)
    log_warning(path, " was made with another tokenizer (", dataset.format().name, ", ", made_with,
                ") than the text is shown by (", tokenizer.about().name, ", ",
                tokenizer.about().hash, ")");
}

// Every byte comes from there: what a cache holds is not asked. Two shards are here at a time.
Verification verify_distant(const std::string& path) {
  const TemporaryDirectory directory;
  ShardCache::Config cache{.directory = directory.path()};
  {
    NodeFiles look(cache, process_environment());
    cache.most_bytes = look.room_of({path}, 2);
  }
  NodeFiles files(cache, process_environment());
  return verify(path, &files);
}

// Where nothing was read, there is nothing to say of the bytes.
void tell_not_verified(const std::string& path) {
  std::cout << path << ": not verified, for nothing of it was read\n";
}

// The exit code.
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
                : found.ended          ? "not damaged"
                : found.hashed         ? "whole"
                                       : "sizes and tokens are right (no hashes to compare with)")
            << (found.ended ? "; the others could not be looked at\n" : "\n");
  return found.damages.empty() ? 0 : kDamaged;
}

}  // namespace

int data_pack(const DataPackOptions& options) {
  if (options.inputs.empty()) throw UsageError("nothing to pack; name files, directories or -");
  if (options.out.empty()) throw UsageError("--out: expected the dataset's directory");
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
  NodeFiles files({}, process_environment());
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
    log_warning(options.to, " does not keep ", lost);
  if (!done.replaced.empty()) log_warning(done.replaced);
  std::cout << options.out << ": " << with_commas(done.tokens) << " tokens in "
            << with_commas(done.documents) << (done.documents == 1 ? " document, " : " documents, ")
            << done.shards << (done.shards == 1 ? " shard\n" : " shards\n");
  return 0;
}

int data_verify(const std::vector<std::string>& datasets) {
  int exit_code = 0;
  std::exception_ptr ended;  // the first
  for (const auto& path : datasets) {
    Verification found;
    try {
      found = is_remote(path) ? verify_distant(path) : verify(path);
    } catch (const AccessError&) {
      found.ended = std::current_exception();
    } catch (const DataError& error) {  // it is not known what should be there
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
          "--document-separator: expected text; where it is not given a file is a document");
    o->document_separator = text;
  };
  return {
      "pack",
      "turn text into a dataset of tokens",
      {{"input", &o->inputs, "Text", "INPUT",
        "text, or lines of JSON, both also compressed by gzip or zstd: files, directories with "
        "them, quoted patterns ('*.jsonl.zst'); -: standard input",
        kRequired},
       {"--document-separator", separator, "Text", "TEXT",
        "what stands between documents of text, such as '\\n\\n', '\\r\\n\\r\\n' where lines end "
        "so "
        "(default: a file is a document)"},
       {"--field", &o->field, "Text", "NAME",
        "the member of a line of JSON that is a document, meta.text of an object in it (default: "
        "text, of files called *.jsonl, *.ndjson, *.jl or *.json.gz; all others are text)"},
       {"--plain-text", &o->plain_text, "Text", "",
        "text is taken as it stands: names of special tokens, such as <|endoftext|>, are text like "
        "any other (default: these tokens), and JSON and tables are text (default: refused)"},
       {"--missing-bytes", &o->missing_bytes, "Text", "refuse|drop|replace",
        "text with a byte that the tokenizer has no token for: refuse; drop the byte, as "
        "transformers does; or replace its character by U+FFFD",
        kWithDefault},
       {"--prompt-field", &o->prompt_field, "Responses", "NAME",
        "to learn responses: the member that is not learnt, only read"},
       {"--response-field", &o->response_field, "Responses", "NAME", "and the one that is"},
       {"--messages-field", &o->messages_field, "Responses", "NAME",
        "a conversation, a list of {\"role\", \"content\"}, of which what the assistant says is "
        "learnt"},
       {"--chat-template", &o->chat_template, "Responses", "NAME",
        "what stands around messages: chatml, llama3, or a file (docs/packing.md)"},
       {"--out", &o->out, "Dataset", "DIR",
        "the dataset; must not exist yet. What is done lies in DIR.tmp: the same command goes on "
        "where it was stopped",
        kRequired},
       {"--tokenizer", &o->tokenizer, "Dataset", "bytes|PATH",
        "what turns text into tokens: bytes, a tokenizer's file (tokenizer.json, tekken.json, a "
        "rank file) or a directory that holds one",
        kWithDefault},
       {"--document-token", &o->document_token, "Dataset", "TOKEN",
        "the token in front of a document (default: as the tokenizer's files say)"},
       {"--validation", &o->validation, "Dataset", "SHARE",
        "share of documents held out in DIR/validation: 0.5%, or 0.005, which is the same (0.5 is "
        "half of them); the rest is DIR/train"},
       {"--shard-tokens", &o->shard_tokens, "Dataset", "TOKENS", "in a file at most",
        kWithDefault.within(1, kMostInt)},
       {"--threads", &o->threads, "Dataset", "N", "that tokenize (default: one a processor)",
        kRule.within(1, static_cast<double>(most_threads()))}},
      [o] { return data_pack(*o); }};
}

Verb inspect_verb() {
  auto o = std::make_shared<DataInspectOptions>();
  return {
      "inspect",
      "say what a dataset holds, and show some of it",
      {{"dataset", &o->dataset, "Dataset", "DATASET", "its directory, or a shard", kRequired},
       {"--at", &o->at, "Dataset", "N",
        "show this token, marked, in its document (default: the first tokens)", kRule.within(0)},
       {"--count", &o->count, "Dataset", "N",
        "tokens to show, of --at from there on, and at most as many in front",
        kWithDefault.within(0)},
       {"--tokenizer", &o->tokenizer, "Dataset", "bytes|PATH",
        "by which tokens are shown as text (default: the one beside the dataset)"}},
      [o] { return data_inspect(*o); }};
}

Verb convert_verb() {
  auto o = std::make_shared<DataConvertOptions>();
  return {
      "convert",
      "write a dataset as shards of another format",
      {{"input", &o->inputs, "Dataset", "DATASET",
        "directories, shards or patterns of any format that is read", kRequired},
       {"--to", &o->to, "Dataset", "FORMAT", "lockstep, llmc, nanogpt, megatron or datatrove",
        kRequired},
       {"--out", &o->out, "Dataset", "DIR", "the directory; must not exist yet", kRequired},
       {"--name", &o->name, "Dataset", "NAME", "what the names of files begin with", kWithDefault},
       {"--shard-tokens", &o->shard_tokens, "Dataset", "TOKENS",
        "a file ends where it has so many (nanogpt: one file)", kWithDefault.within(1, kMostInt)},
       {"--tokenizer", &o->tokenizer, "Dataset", "bytes|PATH",
        "that the tokens are of, where the input does not say it"},
       {"--vocabulary", &o->vocabulary, "Dataset", "N",
        "ids are below it, where there is no --tokenizer (default: one more than the largest)",
        kRule.within(1, kMostInt)}},
      [o] { return data_convert(*o); }};
}

Verb verify_verb() {
  auto datasets = std::make_shared<std::vector<std::string>>();
  return {"verify",
          "read every byte of datasets and list all damage",
          {{"dataset", datasets.get(), "Dataset", "DATASET", "directories, or shards", kRequired}},
          [datasets] { return data_verify(*datasets); }};
}

}  // namespace

Verb data_verb() {
  return {"data",
          "datasets of tokens",
          {},
          {},
          {pack_verb(), inspect_verb(), convert_verb(), verify_verb()}};
}

}  // namespace lockstep
