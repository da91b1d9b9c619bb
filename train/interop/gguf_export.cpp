#include "train/interop/gguf_export.h"

#include <algorithm>

#include "checkpoint/convert.h"
#include "core/file.h"
#include "kernels/rope.h"
#include "model/families.h"
#include "train/interop/gguf_tokenizer.h"
#include "train/interop/slices_by_name.h"

namespace lockstep {
namespace {

constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 18;

// ----------------------------------------------------------------------------- what llama.cpp has

const char* architecture(Family family) {
  switch (family) {
    case Family::gpt2: return "gpt2";
    case Family::llama3: return "llama";
    case Family::qwen2: return "qwen2";
    case Family::qwen3: return "qwen3";
    case Family::smollm3: return "smollm3";
  }
  LOCKSTEP_FAIL("no such family");
}

// llama.cpp rotates neighbours (2i, 2i + 1) in these families, Lockstep (i, i + K/2).
bool rotates_neighbours(Family family) {
  return family == Family::llama3 || family == Family::smollm3;
}

// Names the first setting that llama.cpp has in other families only (its src/models).
void check(const ModelConfig& c) {
  const auto refuse = [&](bool is_set, const std::string& what) {
    if (is_set)
      throw DataError(str("llama.cpp does not support ", architecture(c.family), " models with ",
                          what, "; export to a Hugging Face directory instead"));
  };
  const bool is_llama = c.family == Family::llama3, is_gpt2 = c.family == Family::gpt2;
  refuse(!is_llama && c.rope_scaling.has_value(), "scaled RoPE frequencies");
  refuse(!is_llama && !is_gpt2 && c.out_bias, "a bias of the attention output");
  refuse(!is_llama && !is_gpt2 && c.mlp_bias, "biases of the MLP");
  refuse(c.family == Family::qwen2 && c.attention_width() != c.width,
         str("heads x head size (", c.attention_width(), ") other than the width (", c.width, ")"));
  refuse(c.family == Family::smollm3 && c.no_rope_every != 4,
         str("no_rope_every ", c.no_rope_every, ", only with 4"));
}

GgufMetadata metadata_of(const ModelConfig& c, GgufType type) {
  const std::string name = architecture(c.family);
  GgufMetadata m;
  m.set("general.architecture", name);
  constexpr std::int64_t kFileTypes[] = {0, 1, 7};  // of GgufType
  m.set("general.file_type", kFileTypes[static_cast<std::size_t>(type)]);
  if (type == GgufType::q8_0) m.set("general.quantization_version", std::int64_t{2});
  m.set(name + ".vocab_size", c.vocabulary);
  m.set(name + ".context_length", c.max_positions);
  m.set(name + ".embedding_length", c.width);
  m.set(name + ".block_count", c.layers);
  m.set(name + ".feed_forward_length", c.mlp_width);
  m.set(name + ".attention.head_count", c.heads);
  m.set(name + ".attention.head_count_kv", c.kv_heads);
  m.set(name + (c.norm == ModelConfig::Norm::rms ? ".attention.layer_norm_rms_epsilon"
                                                 : ".attention.layer_norm_epsilon"),
        c.norm_epsilon);
  if (c.learned_positions) return m;
  m.set(name + ".attention.key_length", c.head_size);
  m.set(name + ".attention.value_length", c.head_size);
  m.set(name + ".rope.dimension_count", c.head_size);
  m.set(name + ".rope.freq_base", c.rope_theta);
  return m;
}

// ------------------------------------------------------------------------------------- tensors

// A tensor of the file: the rows of its parameters, one parameter after the other.
struct Source {
  std::vector<std::string> parameters;
  std::int64_t head_rows = 0;  // > 0: the rows of a head are reordered for neighbours
};

// The names of llama.cpp for the parameters of layers, without "blk.N." and ".weight".
std::string layer_tensor(const LayerNames& n, const std::string& name) {
  const std::pair<std::string, const char*> kNames[] = {
      {n.norm1, "attn_norm"}, {n.q, "attn_q"},           {n.k, "attn_k"},
      {n.v, "attn_v"},        {n.q_norm, "attn_q_norm"}, {n.k_norm, "attn_k_norm"},
      {n.out, "attn_output"}, {n.norm2, "ffn_norm"},     {n.gate, "ffn_gate"},
      {n.up, "ffn_up"},       {n.down, "ffn_down"}};
  for (const auto& [ours, theirs] : kNames)
    if (name == ours) return theirs;
  LOCKSTEP_FAIL("no name for ", name);
}

// The name of llama.cpp for a tensor; `name` has no ".weight".
std::string gguf_name(const ModelConfig& c, const std::string& name) {
  const auto names = model_names(c.family);
  if (name == names.embedding) return "token_embd";
  if (name == names.positions) return "position_embd";
  if (name == names.final_norm) return "output_norm";
  if (name == names.head) return "output";
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const auto of_layer = layer_names(c.family, layer);
    const auto prefix = of_layer.norm1.substr(0, of_layer.norm1.rfind('.') + 1);
    if (name.starts_with(prefix)) return str("blk.", layer, ".", layer_tensor(of_layer, name));
  }
  LOCKSTEP_FAIL("no name for ", name);
}

class Tensors {
 public:
  Tensors(const ModelConfig& config, GgufType type) : config_(config), type_(type) {
    for (const auto& tensor : huggingface_tensors(config))
      add(tensor);
  }

  std::vector<GgufTensor> list() const { return list_; }
  const std::vector<Source>& sources() const { return sources_; }

 private:
  void add(const HuggingFaceTensor& tensor) {
    const auto& parameter = tensor.parameters.front();
    const auto dot = parameter.rfind('.');  // before weight or bias
    const auto own = parameter.substr(0, dot);
    auto name = gguf_name(config_, own);
    if (tensor.parameters.size() > 1) name = name.substr(0, name.rfind('.')) + ".attn_qkv";
    Shape shape = tensor.shape;
    if (tensor.transposed) std::swap(shape.size[0], shape.size[1]);
    // llama.cpp takes norms, biases and learned positions in F32 only.
    const bool is_plain = shape.rank == 1 || own == model_names(config_.family).positions;
    const auto type = is_plain ? GgufType::f32 : type_;
    if (type == GgufType::q8_0 && shape[1] % kGgufBlock != 0)
      throw DataError(str("Q8_0 needs rows of a multiple of ", kGgufBlock, " elements, but ",
                          parameter, " has ", shape[1], "; export as F16"));
    list_.push_back({name + parameter.substr(dot), shape, type});
    const bool is_rotated = rotates_neighbours(config_.family) &&
                            (name.ends_with(".attn_q") || name.ends_with(".attn_k"));
    sources_.push_back({tensor.parameters, is_rotated ? config_.head_size : 0});
  }

  const ModelConfig& config_;
  GgufType type_;
  std::vector<GgufTensor> list_;
  std::vector<Source> sources_;
};

// Row of a parameter that becomes row `row` of the file.
std::int64_t source_row(std::int64_t row, std::int64_t head_rows) {
  if (head_rows == 0) return row;
  const auto head = row / head_rows, in_head = row % head_rows;
  return head * head_rows + in_head / 2 + in_head % 2 * (head_rows / 2);
}

// Copies `out.size()` elements of a parameter from element `begin` on, as fp32.
void read_elements(const std::vector<const StateSlice*>& slices, std::int64_t begin,
                   std::span<float> out) {
  const auto end = begin + std::ssize(out);
  for (const auto* slice : slices) {
    const auto from = std::max(begin, slice->piece.begin), to = std::min(end, slice->piece.end);
    if (from >= to) continue;
    const auto type = slice->local.dtype;
    convert_elements(
        slice->local.data + (from - slice->piece.begin) * bytes_per_element(type), type,
        std::as_writable_bytes(out.subspan(static_cast<std::size_t>(from - begin))).data(),
        DType::fp32, to - from);
  }
}

void write_parameter(GgufWriter& writer, const SlicesByName& parts, const std::string& name,
                     std::int64_t head_rows) {
  const auto& slices = parts.whole(name);
  const auto& shape = parts.shape(name);
  const auto rows = shape[0], width = shape.rank > 1 ? shape[1] : 1;
  const auto most = std::max<std::int64_t>(kElementsAtOnce / width, 1);
  std::vector<float> some;
  for (std::int64_t first = 0; first < rows; first += most) {
    const auto count = std::min(most, rows - first);
    some.resize(static_cast<std::size_t>(count * width));
    if (head_rows == 0)
      read_elements(slices, first * width, some);
    else
      for (std::int64_t i = 0; i < count; ++i)
        read_elements(slices, source_row(first + i, head_rows) * width,
                      std::span(some).subspan(static_cast<std::size_t>(i * width),
                                              static_cast<std::size_t>(width)));
    writer.write(some);
  }
}

// Divisors of the RoPE frequencies in llama.cpp.
std::vector<float> rope_divisors(const ModelConfig& c) {
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < c.head_size / 2; ++i)
    divisors.push_back(inverse_frequency(i, c.head_size, c.rope_theta, {}) /
                       inverse_frequency(i, c.head_size, c.rope_theta, c.rope_scaling));
  return divisors;
}

}  // namespace

void export_gguf(const std::filesystem::path& path, const ModelConfig& config,
                 std::span<const StateSlice> weights, const GgufExport& options) {
  if (path_exists(path))
    throw UsageError(str(path.string(), ": expected a new file; choose another"));
  check(config);
  auto metadata = metadata_of(config, options.type);
  add_gguf_tokenizer(metadata, options.tokenizer, options.token_ids, config.vocabulary);
  const Tensors tensors(config, options.type);
  auto list = tensors.list();
  const auto divisors = config.rope_scaling ? rope_divisors(config) : std::vector<float>();
  if (!divisors.empty())
    list.insert(list.begin(), {"rope_freqs.weight", {std::ssize(divisors)}, GgufType::f32});
  GgufWriter writer(path, metadata, std::move(list));
  if (!divisors.empty()) writer.write(divisors);
  const SlicesByName parts(weights);
  for (const auto& source : tensors.sources()) {
    for (const auto& parameter : source.parameters)
      for (const auto* slice : parts.whole(parameter))
        if (slice->fetch) slice->fetch();
    for (const auto& parameter : source.parameters)
      write_parameter(writer, parts, parameter, source.head_rows);
  }
  writer.commit();
}

}  // namespace lockstep
