#include "train/interop/llmc.h"

#include <array>

#include "checkpoint/convert.h"
#include "core/file.h"
#include "model/families.h"
#include "train/interop/slices_by_name.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMagic = 20240326;
constexpr std::int32_t kFp32 = 3, kBf16 = 5;  // versions

using Header = std::array<std::int32_t, 256>;

class LlmcFile {
 public:
  explicit LlmcFile(const fs::path& path) : file_(path) {
    if (file_.size_bytes() < static_cast<std::int64_t>(sizeof(Header)))
      file_.fail(0, str("expected a header of ", sizeof(Header), " bytes, but the file has ",
                        file_.size_bytes(), " bytes"));
    file_.read(std::as_writable_bytes(std::span(header_)), 0);
    if (header_[0] != kMagic)
      file_.fail(0,
                 str("expected the magic number ", kMagic, " of an llm.c model, got ", header_[0]));
    if (header_[1] != kFp32 && header_[1] != kBf16)
      file_.fail(
          4, str("expected version ", kFp32, " (fp32) or ", kBf16, " (bf16), got ", header_[1]));
    dtype_ = header_[1] == kFp32 ? DType::fp32 : DType::bf16;
    read_config();
    check_size();
  }

  const ModelConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  std::int64_t padded_vocabulary() const { return padded_vocabulary_; }

  // Fills `out` with the elements from `first` on, counted from the end of the header.
  void read(std::int64_t first, Tensor out) const {
    constexpr std::int64_t kPiece = 65536;
    const std::int64_t size = bytes_per_element(dtype_);
    std::vector<std::byte> piece(static_cast<std::size_t>(kPiece * size));
    for (std::int64_t done = 0; done < out.elements(); done += kPiece) {
      const auto count = std::min(kPiece, out.elements() - done);
      file_.read(std::span(piece).first(static_cast<std::size_t>(count * size)),
                 static_cast<std::int64_t>(sizeof(Header)) + (first + done) * size);
      convert_elements(piece.data(), dtype_, out.data + done * bytes_per_element(out.dtype),
                       out.dtype, count);
    }
  }

 private:
  std::int64_t entry(std::size_t i, const char* what) const {
    constexpr std::int64_t kMost = std::int64_t{1} << 24;  // so that no product of them overflows
    if (header_[i] < 1 || header_[i] > kMost)
      file_.fail(static_cast<std::int64_t>(4 * i),
                 str(what, " is ", header_[i], ", expected 1 to ", kMost));
    return header_[i];
  }

  void read_config() {
    config_ = family_defaults(Family::gpt2);
    config_.max_positions = entry(2, "the maximum sequence length");
    config_.vocabulary = entry(3, "the vocabulary");
    config_.layers = entry(4, "the number of layers");
    config_.heads = config_.kv_heads = entry(5, "the number of heads");
    config_.width = entry(6, "the width");
    padded_vocabulary_ = entry(7, "the padded vocabulary");
    config_.head_size = config_.width / config_.heads;
    config_.mlp_width = 4 * config_.width;
    if (config_.head_size * config_.heads != config_.width)
      file_.fail(20, str("the width ", config_.width, " is not a multiple of the ", config_.heads,
                         " heads"));
    if (padded_vocabulary_ < config_.vocabulary)
      file_.fail(28, str("the padded vocabulary is ", padded_vocabulary_,
                         ", expected at least the vocabulary, which is ", config_.vocabulary));
    try {
      config_.validate();
    } catch (const ConfigError& error) {
      file_.fail(0, error.what());
    }
  }

  // No product here overflows: the configuration was validated.
  void check_size() const {
    const auto& c = config_;
    const std::int64_t elements = (padded_vocabulary_ + c.max_positions) * c.width +
                                  c.layers * (12 * c.width * c.width + 13 * c.width) + 2 * c.width;
    const auto bytes =
        static_cast<std::int64_t>(sizeof(Header)) + elements * bytes_per_element(dtype_);
    if (bytes != file_.size_bytes())
      file_.fail(file_.size_bytes(),
                 str("expected a file of ", bytes, " bytes according to its header, got ",
                     file_.size_bytes(), " bytes",
                     file_.size_bytes() < bytes ? "; is it truncated?" : ""));
  }

  ReadFile file_;
  Header header_{};
  DType dtype_ = DType::fp32;
  ModelConfig config_;
  std::int64_t padded_vocabulary_ = 0;
};

// Reader reads parameters in the order of the file.
class Reader {
 public:
  Reader(const LlmcFile& file, const SlicesByName& parts) : file_(file), parts_(parts) {}

  void read(const std::string& name) {
    for (const auto* slice : parts_.of(name))
      visit_runs(*slice, [&](std::int64_t whole, std::int64_t count, std::int64_t at) {
        file_.read(at_ + whole, slice->local.rows(at, count));
      });
    at_ += parts_.shape(name).elements();
  }
  void skip(std::int64_t elements) { at_ += elements; }

 private:
  const LlmcFile& file_;
  const SlicesByName& parts_;
  std::int64_t at_ = 0;
};

}  // namespace

bool is_llmc_model(const fs::path& path) {
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return false;
  const ReadFile file(path);
  std::int32_t magic = 0;
  if (file.size_bytes() < static_cast<std::int64_t>(sizeof magic)) return false;
  file.read(std::as_writable_bytes(std::span(&magic, 1)), 0);
  return magic == kMagic;
}

ModelConfig llmc_config(const fs::path& path) {
  return LlmcFile(path).config();
}

void import_llmc(const fs::path& path, std::span<const StateSlice> weights) {
  const LlmcFile file(path);
  const auto& c = file.config();
  const SlicesByName parts(weights);
  Reader reader(file, parts);
  const auto model = model_names(Family::gpt2);
  reader.read(model.embedding + ".weight");
  reader.skip((file.padded_vocabulary() - c.vocabulary) * c.width);
  reader.read(model.positions + ".weight");
  // The file has each group for all layers, before the next group.
  using Names = std::vector<std::string LayerNames::*>;
  const std::pair<Names, const char*> groups[] = {
      {{&LayerNames::norm1}, ".weight"},
      {{&LayerNames::norm1}, ".bias"},
      {{&LayerNames::q, &LayerNames::k, &LayerNames::v}, ".weight"},
      {{&LayerNames::q, &LayerNames::k, &LayerNames::v}, ".bias"},
      {{&LayerNames::out}, ".weight"},
      {{&LayerNames::out}, ".bias"},
      {{&LayerNames::norm2}, ".weight"},
      {{&LayerNames::norm2}, ".bias"},
      {{&LayerNames::up}, ".weight"},
      {{&LayerNames::up}, ".bias"},
      {{&LayerNames::down}, ".weight"},
      {{&LayerNames::down}, ".bias"}};
  for (const auto& [members, suffix] : groups)
    for (std::int64_t layer = 0; layer < c.layers; ++layer)
      for (const auto member : members)
        reader.read(layer_names(Family::gpt2, layer).*member + suffix);
  reader.read(model.final_norm + ".weight");
  reader.read(model.final_norm + ".bias");
}

}  // namespace lockstep
