#include "data/pack/pack.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/thread_pool.h"
#include "core/utf8.h"
#include "data/pack/batch_pipeline.h"
#include "data/pack/document_encoder.h"
#include "data/pack/document_reader.h"
#include "data/pack/output_directory.h"
#include "data/pack/pack_directory.h"
#include "data/pack/progress.h"
#include "data/pack/text_source.h"
#include "data/remote/remote.h"
#include "data/tokenizer/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool lies_in(const fs::path& path, const fs::path& directory) {
  std::error_code unknown;
  const auto inner = fs::weakly_canonical(fs::absolute(path), unknown);
  const auto outer = fs::weakly_canonical(fs::absolute(directory), unknown);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// Otherwise a second run would pack the shards of the first one.
void refuse_output_inside_input(const fs::path& out, const std::vector<fs::path>& inputs) {
  std::error_code unknown;
  for (const auto& input : inputs)
    if (fs::is_directory(input, unknown) && lies_in(out, input))
      throw UsageError(str(out.string(), ": lies inside the input directory ", input.string()));
}

// Packing works in this directory and removes it. A pattern or a directory may contain it when
// packing resumes.
void leave_out_work(const fs::path& out, const std::vector<fs::path>& inputs,
                    std::vector<fs::path>& files) {
  const auto work = PackDirectory::work_of(out);
  for (const auto& input : inputs)
    if (input != "-" && lies_in(input, work))
      throw UsageError(str(input.string(), ": lies in ", work.string(),
                           ", the work directory of packing, which is removed at the end; move it, "
                           "or choose another --out"));
  std::erase_if(files, [&](const fs::path& file) { return file != "-" && lies_in(file, work); });
}

DocumentFields fields_of(const PackOptions& options) {
  const auto given = [](const std::string& name) { return name.empty() ? 0 : 1; };
  if (given(options.prompt_field) != given(options.response_field))
    throw UsageError("--prompt-field and --response-field must be given together");
  if (given(options.messages_field) != given(options.chat_template))
    throw UsageError("--messages-field and --chat-template must be given together");
  if (given(options.field) + given(options.prompt_field) + given(options.messages_field) > 1)
    throw UsageError("expected only one of --field, --prompt-field and --messages-field");
  if (!options.document_separator.empty() &&
      given(options.field) + given(options.prompt_field) + given(options.messages_field) > 0)
    throw UsageError("--document-separator is for text; in JSON lines each line is a document");
  DocumentFields fields;
  fields.plain = options.plain_text;
  fields.missing_bytes = options.missing_bytes;
  if (!options.field.empty()) fields.text = options.field;
  fields.prompt = options.prompt_field;
  fields.response = options.response_field;
  fields.messages = options.messages_field;
  if (!options.chat_template.empty()) fields.chat_template = chat_template(options.chat_template);
  return fields;
}

void check_tokenizer(const Tokenizer& tokenizer) {
  constexpr std::size_t kMost = 5;
  const auto& about = tokenizer.about();
  if (about.document_token >= 0) return;
  std::vector<std::string_view> special;
  for (std::int32_t id = 0; id < about.vocabulary && special.size() <= kMost; ++id)
    if (tokenizer.is_special(id)) special.push_back(tokenizer.bytes_of(id));
  std::string names;
  for (std::size_t i = 0; i < std::min(special.size(), kMost); ++i)
    names += str(i == 0 ? "" : " or ", "--document-token '", special[i], "'");
  throw UsageError(str("the tokenizer ", about.name,
                       " does not define which token starts a document",
                       special.empty() ? ", and has no special token" : "; pass one: ", names,
                       special.size() > kMost ? ", ..." : ""));
}

// Formats bytes as "8 bytes, 04 06 13 14 16 1d f1 f2 (hexadecimal)".
std::string in_hex(std::string_view bytes) {
  constexpr std::size_t kMost = 16;
  constexpr std::string_view kHex = "0123456789abcdef";
  auto text = bytes.size() == 1 ? std::string("the byte") : str(bytes.size(), " bytes,");
  for (const char c : bytes.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    text += str(" ", kHex[byte / 16], kHex[byte % 16]);
  }
  return text + (bytes.size() > kMost ? " ... (hexadecimal)" : " (hexadecimal)");
}

void check_missing_bytes(const Tokenizer& tokenizer, MissingBytes missing) {
  const auto bytes = tokenizer.missing_bytes();
  if (bytes.empty()) return;
  const auto lacks =
      str("the tokenizer ", tokenizer.about().name, " has no token for ", in_hex(bytes));
  if (missing == MissingBytes::replace && kReplacement.find_first_of(bytes) != std::string::npos)
    throw UsageError(str("--missing-bytes replace: ", lacks,
                         ", but U+FFFD needs the bytes ef bf bd; pass --missing-bytes drop"));
  if (missing == MissingBytes::refuse)
    log_info(lacks,
             "; packing stops at such a byte. To accept it, pass --missing-bytes drop or replace");
}

Json input_of(const fs::path& file) {
  Json json;
  std::error_code unknown;
  json.set("file", fs::absolute(file).string());
  if (!fs::is_regular_file(file, unknown)) return json;
  json.set("bytes", static_cast<std::int64_t>(fs::file_size(file, unknown)));
  json.set("time", static_cast<std::int64_t>(
                       fs::last_write_time(file, unknown).time_since_epoch().count()));
  return json;
}

// Returns the settings that determine the output.
Json command_of(const PackOptions& options, const std::vector<fs::path>& files,
                const DocumentFields& fields, const Tokenizer::About& about) {
  Json command;
  command.set("document_separator", hash_hex(options.document_separator));
  command.set("validation", options.validation_share);
  command.set("shard_tokens", options.shard_tokens);
  command.set("tokenizer", about.hash);
  command.set("tokenizer_name", about.name);
  command.set("document_token", about.document_token);
  command.set("end_token", about.end_token);
  command.set("plain_text", options.plain_text);
  command.set("missing_bytes", name(options.missing_bytes));
  command.set("field", options.field);
  command.set("prompt_field", options.prompt_field);
  command.set("response_field", options.response_field);
  command.set("messages_field", options.messages_field);
  std::string roles;
  if (fields.chat_template)
    for (const auto& [role, texts] : fields.chat_template->roles)
      roles += str(role, '\0', texts.prefix, '\0', texts.suffix, '\0');
  command.set("chat_template", hash_hex(roles));
  Json inputs{Json::Array{}};
  for (const auto& file : files)
    inputs.push(input_of(file));
  command.set("inputs", std::move(inputs));
  return command;
}

bool can_be_read_again(const std::vector<fs::path>& files) {
  return std::all_of(files.begin(), files.end(), [](const fs::path& file) {
    std::error_code unknown;
    return file != "-" && fs::is_regular_file(file, unknown);
  });
}

TokenFormat format_of(const Tokenizer::About& about, const ShardLayout& layout) {
  TokenFormat format{about.name,       kShardHeaderBytes, layout.token_bytes,
                     about.vocabulary, Boundary::front,   about.document_token};
  // A conversation may contain the document token, and a response may end with it.
  if (layout.masked) {
    format.boundary = Boundary::listed;
    format.boundary_token = -1;
  }
  return format;
}

// Data that all threads share.
struct Job {
  const PackOptions& options;
  std::vector<fs::path> files;
  DocumentFields fields;
  std::unique_ptr<Tokenizer> tokenizer;
  ShardLayout layout = {};
};

void read_all(DocumentReader& reader, BatchPipeline& pipeline) {
  for (;;) {
    auto batch = pipeline.take_free();
    if (!reader.fill(*batch)) return;
    pipeline.submit(std::move(batch));
  }
}

void warn_of_separator(const DocumentReader::Seen& seen, const PackOptions& options) {
  if (options.document_separator.empty() || seen.files == 0 || seen.separators > 0) return;
  const bool other_ends =
      seen.carriage_returns && options.document_separator.find('\n') != std::string::npos;
  log_warning("--document-separator does not occur in the text: each file is one document",
              other_ends ? R"(; its lines end with \r\n, which the separator must contain)" : "");
}

void write_all(const Job& job, DatasetWriter& writer, const InputPosition& start) {
  Progress progress("pack", total_bytes(job.files));
  const auto& options = job.options;
  const bool all_json_lines = !options.field.empty() || job.fields.masked();
  DocumentReader reader({job.files, options.document_separator, all_json_lines, options.plain_text},
                        *job.tokenizer, start, progress);
  std::vector<bool> is_json_lines;
  for (std::size_t i = 0; i < job.files.size(); ++i)
    is_json_lines.push_back(reader.is_json_lines(static_cast<std::int64_t>(i)));
  const DocumentEncoder encoder(*job.tokenizer, job.fields, job.files, is_json_lines);
  const int threads = options.threads > 0 ? options.threads : processors_allowed();
  std::vector<DocumentEncoder::Memory> memories;
  for (int i = 0; i < threads; ++i)
    memories.push_back(encoder.memory());
  BatchPipeline pipeline(
      threads,
      [&](TextBatch& batch, int thread) {
        encoder.encode(batch, memories[static_cast<std::size_t>(thread)]);
      },
      [&](TextBatch& batch) { writer.write(batch); });
  // Input before the error is still written, and an error in it is reported first.
  std::exception_ptr refused;
  try {
    read_all(reader, pipeline);
  } catch (...) {
    refused = std::current_exception();
  }
  pipeline.finish();
  if (refused) std::rethrow_exception(refused);
  if (start.file == 0 && start.byte == 0) warn_of_separator(reader.seen(), options);
  if (const auto count = encoder.without_target(); count > 0)
    log_warning(count, count == 1 ? " conversation has" : " conversations have",
                " no text of the assistant: no token of ", count == 1 ? "it" : "them",
                " counts in the loss");
}

void check_split(const DatasetWriter& writer, const PackOptions& options) {
  const auto train = writer.documents(0);
  const auto validation = options.validation_share > 0 ? writer.documents(1) : 0;
  if (train + validation == 0) throw DataError("the input holds no text");
  if (options.validation_share == 0 || (train > 0 && validation > 0)) return;
  throw DataError(str("--validation holds out whole documents, and ",
                      100 * options.validation_share, "% of ", train + validation,
                      " documents leaves one split empty; hold out a larger share, or set the "
                      "separator of documents: --document-separator '\\n\\n'"));
}

std::vector<PackedDataset> finish(const Job& job, DatasetWriter& writer, const fs::path& out) {
  for (std::size_t i = 0; i < (job.options.validation_share > 0 ? 2U : 1U); ++i)
    copy_tokenizer_files(tokenizer_files(job.options.tokenizer), writer.directory(i));
  const auto& about = job.tokenizer->about();
  const auto manifests = writer.finish({.format = format_of(about, job.layout),
                                        .tokenizer_hash = about.hash,
                                        .shards = {},
                                        .missing_bytes = job.options.missing_bytes});
  std::vector<PackedDataset> packed;
  for (std::size_t i = 0; i < manifests.size(); ++i)
    packed.push_back({manifests.size() == 1 ? out : out / (i == 0 ? "train" : "validation"),
                      manifests[i], writer.text_bytes()});
  return packed;
}

}  // namespace

std::vector<PackedDataset> pack(const PackOptions& options) {
  LOCKSTEP_CHECK(0 <= options.validation_share && options.validation_share < 1, "validation share ",
                 options.validation_share);
  const auto out = output_path(options.out);
  for (const auto& input : options.inputs)
    require_local(input.string());
  refuse_output_inside_input(out, matching_paths(options.inputs));
  if (options.document_separator.size() > kMostSeparatorBytes)
    throw UsageError(str("--document-separator has ", options.document_separator.size(),
                         " bytes, expected at most ", kMostSeparatorBytes));
  Job job{.options = options,
          .files = text_files(options.inputs),
          .fields = fields_of(options),
          .tokenizer = open_tokenizer(options.tokenizer, options.document_token)};
  leave_out_work(out, options.inputs, job.files);
  const auto& about = job.tokenizer->about();
  check_tokenizer(*job.tokenizer);
  check_missing_bytes(*job.tokenizer, options.missing_bytes);
  job.layout = {options.shard_tokens, about.vocabulary > 65536 ? 4 : 2, job.fields.masked()};
  PackDirectory directory(out, command_of(options, job.files, job.fields, about),
                          can_be_read_again(job.files));
  if (const auto& record = directory.record()) {
    in_context(
        [&] { record->check(job.files.size(), options.validation_share > 0 ? 2 : 1, job.layout); },
        directory.record_path().string());
    log_info(out.string(), ": resuming after ", record->documents, " documents");
  }
  DatasetWriter writer(directory, options.validation_share, job.layout);
  write_all(job, writer, directory.record() ? directory.record()->position : InputPosition{});
  writer.wait();
  try {
    check_split(writer, options);
  } catch (...) {
    directory.abandon();
    throw;
  }
  auto packed = finish(job, writer, out);
  warn_of(writer.odd(), options.missing_bytes);
  directory.commit();
  return packed;
}

}  // namespace lockstep
