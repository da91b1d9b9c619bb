#include "data/pack/convert.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/dataset.h"
#include "data/pack/output_directory.h"
#include "data/pack/progress.h"
#include "data/remote/remote.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPiece = std::int64_t{1} << 20;                       // tokens
constexpr std::int64_t kMostU16 = 65536;                                     // ids
constexpr std::int64_t kMostIds = std::numeric_limits<std::int32_t>::max();  // of dataset.json

const char* const kKinds[] = {"lockstep", "llmc", "nanogpt", "megatron", "datatrove"};

// Returns the largest id plus one.
std::int64_t ids_in(const Dataset& source) {
  Progress progress("find the largest id", source.tokens() * source.format().token_bytes);
  std::vector<std::int32_t> piece;
  std::int32_t largest = 0;
  for (std::int64_t at = 0; at < source.tokens(); at += kPiece) {
    piece.resize(static_cast<std::size_t>(std::min(kPiece, source.tokens() - at)));
    source.read(piece, at, kMostIds);
    largest = std::max(largest, *std::max_element(piece.begin(), piece.end()));
    progress.advance(std::ssize(piece) * source.format().token_bytes);
  }
  return std::int64_t{largest} + 1;
}

int token_bytes_for(OutputKind kind, std::int64_t vocabulary) {
  // The writer of Megatron switches to i32 slightly earlier than necessary.
  constexpr std::int64_t kMostMegatronU16 = 65499;
  if (kind == OutputKind::nanogpt) return 2;
  return vocabulary <= (kind == OutputKind::megatron ? kMostMegatronU16 : kMostU16) ? 2 : 4;
}

// Meaning is what the tokens stand for: their tokenizer.
struct Meaning {
  std::string name = "unknown", hash;  // hash: "" if unknown
  std::int64_t vocabulary = 0;
  std::vector<TokenizerFile> files;  // files of the tokenizer
  std::int32_t document_token = -1;  // of the tokenizer, before each document; -1: unknown
};

// Returns the tokenizer files beside the dataset.json of an input if they match it.
std::vector<TokenizerFile> tokenizer_beside(const Dataset& source) {
  for (const auto& list : source.lists()) {
    const auto file = tokenizer_in(list.directory);
    if (list.tokenizer_hash.empty() || !file) continue;
    if (hash_of_file(*file) == list.tokenizer_hash) return tokenizer_files(file->string());
    log_warning(file->string(), " differs from the tokenizer in ", kManifestName,
                " beside it; it is not copied");
  }
  return {};
}

Meaning meaning_of(const Dataset& source, const ConvertOptions& options) {
  Meaning meaning;
  meaning.hash = source.tokenizer_hash();
  meaning.vocabulary = options.vocabulary > 0 ? options.vocabulary : source.format().vocabulary;
  if (!meaning.hash.empty()) {
    const auto& lists = source.lists();
    meaning.name = std::ranges::find(lists, meaning.hash, &ShardList::tokenizer_hash)->format.name;
    meaning.files = tokenizer_beside(source);
    if (source.format().boundary != Boundary::listed)
      meaning.document_token = source.format().boundary_token;
    else if (meaning.hash == ByteTokenizer().about().hash)
      meaning.document_token = ByteTokenizer::kDocumentToken;
    else if (!meaning.files.empty())
      meaning.document_token =
          open_tokenizer(meaning.files.front().path.string())->about().document_token;
  }
  if (!options.tokenizer.empty()) {
    if (options.vocabulary > 0)
      throw UsageError(
          "--vocabulary cannot be combined with --tokenizer, which sets the vocabulary");
    const auto about = open_tokenizer(options.tokenizer)->about();
    if (!meaning.hash.empty() && meaning.hash != about.hash)
      throw UsageError(str("--tokenizer ", options.tokenizer, " is ", about.name, " (", about.hash,
                           "), but the tokens were made by ", meaning.name, " (", meaning.hash,
                           ")"));
    const bool known = !meaning.hash.empty() && meaning.document_token >= 0;
    meaning = {about.name, about.hash, about.vocabulary, tokenizer_files(options.tokenizer),
               known ? meaning.document_token : about.document_token};
  }
  if (meaning.vocabulary == 0) meaning.vocabulary = ids_in(source);
  return meaning;
}

bool has_token(Boundary boundary) {
  return boundary == Boundary::front || boundary == Boundary::behind;
}

// Whether the separator token of the source replaces the document token of the tokenizer, as in
// formats with a fixed separator.
bool stands_for_another(const Dataset& source, const Meaning& meaning) {
  const auto& format = source.format();
  return source.tokenizer_hash().empty() && has_token(format.boundary) &&
         meaning.document_token >= 0 && meaning.document_token != format.boundary_token;
}

TokenFormat format_for(OutputKind kind, const Dataset& source, const Meaning& meaning) {
  const auto vocabulary = meaning.vocabulary;
  TokenFormat format = source.format();
  if (stands_for_another(source, meaning)) {
    format.boundary = Boundary::front;
    format.boundary_token = meaning.document_token;
  }
  format.name = meaning.name;
  format.header_bytes = kShardHeaderBytes;
  format.token_bytes = token_bytes_for(kind, vocabulary);
  format.vocabulary = vocabulary;
  format.is_signed = false;
  // The separator of nanoGPT is GPT-2's, but shards of characters never contain it.
  if (format.boundary_token >= vocabulary) {
    format.boundary = Boundary::none;
    format.boundary_token = -1;
  }
  return format;
}

// Limits of formats without a document list: ids are below `vocabulary`, and `boundary` occurs
// between documents and nowhere else.
struct InBand {
  const char* what;
  std::int32_t boundary;
  std::int64_t vocabulary;
};

std::optional<InBand> in_band(OutputKind kind, int token_bytes) {
  if (kind == OutputKind::nanogpt) return InBand{"nanoGPT", kGpt2EndOfText, kMostU16};
  if (kind != OutputKind::llmc) return {};
  return token_bytes == 2
             ? InBand{"llm.c with GPT-2 tokens", kGpt2EndOfText, kGpt2Vocabulary}
             : InBand{"llm.c with Llama 3 tokens", kLlama3BeginOfText, kLlama3Vocabulary};
}

// Copy copies documents from a dataset to an output.
class Copy {
 public:
  Copy(const Dataset& source, const Meaning& meaning, ShardOutput& output,
       const ShardOutput::Config& config)
      : source_(source),
        output_(output),
        document_token_(meaning.document_token),
        stands_for_another_(stands_for_another(source, meaning)),
        kind_(config.kind),
        vocabulary_(config.format.vocabulary),
        masks_(config.masks),
        lists_none_(config.kind == OutputKind::lockstep &&
                    config.format.boundary == Boundary::none),
        in_band_(in_band(config.kind, config.format.token_bytes)),
        progress_("convert", source.tokens() * source.format().token_bytes) {}

  void document(std::int64_t first, std::int64_t end) {
    progress_.advance((end - first) * source_.format().token_bytes);
    if (!in_band_ && stands_for_another_) {
      const auto [body, body_end] = without_boundary(first, end);
      if (body_end - body < end - first) output_.add(std::span(&document_token_, 1), {});
      copy(body, body_end);
    } else if (!in_band_) {
      copy(first, end);
    } else {
      const auto [body, body_end] = without_boundary(first, end);
      const std::span<const std::int32_t> boundary(&in_band_->boundary, 1);
      if (kind_ == OutputKind::llmc) output_.add(boundary, {});
      copy(body, body_end);
      if (kind_ == OutputKind::nanogpt) output_.add(boundary, {});
    }
    // If the source does not separate documents, the output lists no document.
    if (!lists_none_) output_.end_document();
    ++documents_;
  }

 private:
  std::int32_t token(std::int64_t at) const {
    std::int32_t id = 0;
    source_.read(std::span(&id, 1), at);
    return id;
  }

  // Returns the document without the separator token before or after it. If the source lists
  // documents, this is by convention the document token of the tokenizer at the start, or that of
  // the output, if present. The token of the output is removed at both ends, because it is written
  // between documents anyway.
  std::pair<std::int64_t, std::int64_t> without_boundary(std::int64_t first,
                                                         std::int64_t end) const {
    const auto& format = source_.format();
    const auto is_left_out = [&](std::int64_t at, Boundary side) {
      const auto id = token(at);
      if (in_band_ && id == in_band_->boundary) return true;
      if (has_token(format.boundary)) return id == format.boundary_token && format.boundary == side;
      return id == document_token_ && side == Boundary::front;
    };
    if (is_left_out(first, Boundary::front)) ++first;
    if (first < end && is_left_out(end - 1, Boundary::behind)) --end;
    return {first, end};
  }

  void copy(std::int64_t first, std::int64_t end) {
    for (auto at = first; at < end; at += kPiece) {
      const auto count = static_cast<std::size_t>(std::min(kPiece, end - at));
      tokens_.resize(count);
      source_.read(tokens_, at, vocabulary_);
      if (in_band_) check(at);
      if (stands_for_another_) check_is_not_ambiguous(at);
      if (masks_) {
        mask_.resize(count);
        source_.read_mask(mask_, at);
      }
      output_.add(tokens_, mask_);
    }
  }

  void check(std::int64_t at) const {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i] < in_band_->vocabulary && tokens_[i] != in_band_->boundary) continue;
      const auto place = at + static_cast<std::int64_t>(i);
      const auto shard = source_.shard_of(place);
      const bool within = tokens_[i] == in_band_->boundary;
      throw DataError(
          str(source_.shard_path(shard), ": token ", place - source_.shard_start(shard), " is ",
              tokens_[i], ", which ", in_band_->what,
              within ? str(" uses to separate documents, but it is inside document ", documents_,
                           "; pack the text with --plain-text, which encodes names of special "
                           "tokens as plain text, or convert to a format that lists documents: "
                           "lockstep, megatron, datatrove")
                     : str(" cannot store; expected ids below ", in_band_->vocabulary)));
    }
  }

  // If the separator token is also an id of the tokenizer, it may be text. Then the document token
  // of the tokenizer may be the separator.
  void check_is_not_ambiguous(std::int64_t at) const {
    const auto marker = source_.format().boundary_token;
    if (marker >= vocabulary_) return;
    const auto found = std::ranges::find(tokens_, document_token_);
    if (found == tokens_.end()) return;
    const auto place = at + (found - tokens_.begin());
    const auto shard = source_.shard_of(place);
    throw DataError(str(source_.shard_path(shard), ": token ", place - source_.shard_start(shard),
                        " is ", document_token_,
                        ", the tokenizer's document token, inside document ", documents_,
                        ", but documents are separated by ", marker,
                        ", which is also a token of the tokenizer, so the separator is ambiguous; "
                        "pack the text again"));
  }

  const Dataset& source_;
  ShardOutput& output_;
  std::int32_t document_token_;
  bool stands_for_another_;
  OutputKind kind_;
  std::int64_t vocabulary_;
  bool masks_, lists_none_;
  std::optional<InBand> in_band_;
  Progress progress_;
  std::int64_t documents_ = 0;  // number of documents before this one
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint8_t> mask_;
};

// Describes how the separator token of the output differs from that of the source; "" if it is the
// same or may be.
std::string replaced_token(const Dataset& source, const Meaning& meaning,
                           const ShardOutput::Config& config) {
  const auto output = in_band(config.kind, config.format.token_bytes);
  if (!output) return "";
  const auto& format = source.format();
  const auto before = stands_for_another(source, meaning) || !has_token(format.boundary)
                          ? meaning.document_token
                          : format.boundary_token;
  const auto back =
      " (`lockstep data convert --tokenizer` with the original tokenizer restores it)";
  if (0 <= before && before < meaning.vocabulary)
    return before == output->boundary
               ? ""
               : str("document token ", before, " was replaced by ", output->boundary,
                     ", the document token of ", output->what, back);
  if (output->boundary < meaning.vocabulary) return "";
  return str(output->boundary, ", the document token of ", output->what,
             ", separates documents, but the ids of the tokenizer are below ", meaning.vocabulary,
             back);
}

std::vector<std::string> losses(const Dataset& source, OutputKind kind, bool masks) {
  std::vector<std::string> lost;
  if (source.has_masks() && !masks) lost.emplace_back("loss masks");
  if (kind != OutputKind::lockstep && source.tokenizer_vocabulary() > 0)
    lost.emplace_back("the tokenizer and the hashes in dataset.json");
  return lost;
}

}  // namespace

OutputKind output_kind(const std::string& name) {
  for (std::size_t i = 0; i < std::size(kKinds); ++i)
    if (name == kKinds[i]) return static_cast<OutputKind>(i);
  throw UsageError(str("--to ", name, ": expected lockstep, llmc, nanogpt, megatron or datatrove"));
}

Converted convert(const ConvertOptions& options) {
  if (options.name.empty() || options.name.find('/') != std::string::npos)
    throw UsageError(str("--name ", options.name, ": expected the start of a file name"));
  const auto path = output_path(options.out);
  for (const auto& input : options.inputs)
    require_local(input);
  const Dataset source(options.inputs);
  const auto meaning = meaning_of(source, options);
  const bool masks = source.has_masks() &&
                     (options.to == OutputKind::lockstep || options.to == OutputKind::datatrove);
  OutputDirectory out(path);
  const ShardOutput::Config config{.kind = options.to,
                                   .directory = out.path(),
                                   .name = options.name,
                                   .shard_tokens = options.shard_tokens,
                                   .format = format_for(options.to, source, meaning),
                                   .tokenizer_hash = meaning.hash,
                                   .masks = masks};
  ShardOutput output(config);
  {
    Copy copy(source, meaning, output, config);
    source.for_each_document(
        [&](std::int64_t first, std::int64_t end) { copy.document(first, end); });
  }
  output.finish();
  if (options.to == OutputKind::lockstep) {
    copy_tokenizer_files(meaning.files, out.path());
    if (meaning.files.empty() && !meaning.hash.empty() &&
        meaning.hash != ByteTokenizer().about().hash)
      log_warning("the input has no tokenizer ", meaning.name, " (", meaning.hash,
                  ") beside it; copy the tokenizer into the output directory, because `lockstep "
                  "data verify` reports an error without it");
  }
  out.commit();
  return {.shards = output.shards(),
          .tokens = output.tokens(),
          .documents = output.documents(),
          .lost = losses(source, options.to, masks),
          .replaced = replaced_token(source, meaning, config)};
}

}  // namespace lockstep
