#include "train/run/attention_choice.h"

#include "core/log.h"
#include "kernels/attention_cudnn.h"

namespace lockstep {
namespace {

AttentionSizes attention_sizes(const Config& c) {
  return {.B = c.train.micro_batch,
          .T = c.train.sequence_length,
          .H = c.model.heads,
          .G = c.model.kv_heads,
          .K = c.model.head_size};
}

// The reason why no cuDNN on `device` can compute this attention; empty if one may.
std::string why_no_cudnn_attention(const Config& c, Device device) {
  if (device.kind == Device::Kind::cpu) return "the run is on the CPU";
  if (c.precision.compute != DType::bf16) return "precision.compute is not bf16";
  if (c.data.document_mask)
    return c.data.rows == RowKind::packed ? "documents are packed into rows (data.rows)"
                                          : "data.document_mask is set";
  return why_not_for_cudnn(attention_sizes(c));
}

}  // namespace

Config::Attention attention_of(const Config& c, Stream& compute) {
  using Attention = Config::Attention;
  if (c.train.attention == Attention::own) return Attention::own;
  auto why_not = why_no_cudnn_attention(c, compute.device());
  if (why_not.empty()) why_not = prepare_cudnn_attention(compute, attention_sizes(c));
  if (why_not.empty()) {
    log_info("attention by cuDNN ", cudnn_version());
    return Attention::cudnn;
  }
  if (c.train.attention == Attention::cudnn)
    throw ConfigError(str("train.attention is cudnn, but ", why_not,
                          "; change that, or set train.attention to auto or own"));
  if (compute.is_cuda()) log_info("attention by Lockstep's own kernels, not cuDNN: ", why_not);
  return Attention::own;
}

Config::Attention planned_attention(const Config& c, Device device) {
  using Attention = Config::Attention;
  const bool is_own =
      c.train.attention == Attention::own || !why_no_cudnn_attention(c, device).empty();
  return is_own ? Attention::own : Attention::cudnn;
}

std::string in_words(Config::Attention settled) {
  return settled == Config::Attention::cudnn ? str("cuDNN ", cudnn_version()) : "own kernels";
}

}  // namespace lockstep
