#include "launch/key_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/nearest.h"
#include "launch/options.h"

namespace lockstep {
namespace {

constexpr std::string_view kOfBatch =
    "It is in tokens: the sequences of a step x train.sequence_length";
constexpr std::string_view kOfAccumulation =
    "Gradient accumulation follows from it, train.micro_batch and the number of data ranks";
constexpr std::array kKeyNames{
    KeyNames{"model.layers", "n_layer n_layers num_layers num_hidden_layers depth"},
    KeyNames{"model.width",
             "hidden_size n_embd d_model dim embed_dim hidden_dim embedding_dim model_dim hidden"},
    KeyNames{"model.heads", "n_head n_heads num_heads num_attention_heads attention_heads"},
    KeyNames{
        "model.kv_heads",
        "n_kv_head n_kv_heads num_kv_heads num_key_value_heads num_query_groups n_query_groups"},
    KeyNames{"model.head_size", "head_dim kv_channels d_head"},
    KeyNames{"model.mlp_width",
             "intermediate_size ffn_hidden_size d_ff ffn_dim mlp_dim ffn intermediate_dim"},
    KeyNames{"model.vocabulary", "vocab_size vocab n_vocab padded_vocab_size"},
    KeyNames{"model.max_positions", "max_position_embeddings n_positions n_ctx"},
    KeyNames{"model.norm_epsilon", "rms_norm_eps layer_norm_eps layernorm_epsilon norm_eps"},
    KeyNames{"model.rope_theta", "rope_base rotary_base"},
    KeyNames{"model.tied_head", "tie_word_embeddings tie_embeddings weight_tying"},
    KeyNames{"model.init_std", "initializer_range init_method_std"},
    KeyNames{"model.family", "model_type arch architecture"},
    KeyNames{"layout.tensor",
             "tp tp_size tensor_parallel tensor_parallel_size "
             "tensor_parallel_degree tensor_model_parallel_size"},
    KeyNames{"layout.replicate",
             "dp dp_size data_parallel data_parallel_size dp_replicate "
             "data_parallel_replicate_degree"},
    KeyNames{"layout.shard",
             "fsdp dp_shard fsdp_size data_parallel_shard_degree fully_sharded_data_parallel"},
    KeyNames{"layout.sharding",
             "zero zero_stage sharding_strategy data_parallel_sharding_strategy"},
    KeyNames{"train.steps",
             "max_steps max_iters num_steps n_steps train_iters iterations iters num_iterations "
             "total_steps num_train_steps"},
    KeyNames{"data.source", "epochs num_epochs max_epochs num_train_epochs n_epochs",
             "Its tables may have `epochs`; train.steps or train.tokens is the length of a run"},
    KeyNames{"train.sequence_length",
             "seq_len seq_length max_seq_len max_seq_length block_size "
             "context_length context_size ctx_len context max_length"},
    KeyNames{"train.batch_tokens",
             "batch_size global_batch_size total_batch_size train_batch_size gbs", kOfBatch},
    KeyNames{"train.batch_tokens",
             "grad_accum grad_accum_steps gradient_accumulation gradient_accumulation_steps "
             "batch_accumulation_per_replica accumulate_grad_batches",
             kOfAccumulation},
    KeyNames{"train.micro_batch",
             "micro_batch_size mbs per_device_train_batch_size device_batch_size "
             "local_batch_size"},
    KeyNames{"train.recompute",
             "gradient_checkpointing activation_checkpointing activation_checkpoint "
             "recompute_granularity checkpoint_activations"},
    KeyNames{"train.attention", "attn_implementation flash_attention flash_attn use_flash_attn"},
    KeyNames{"optimizer.learning_rate", "lr max_lr peak_lr base_lr"},
    KeyNames{"optimizer.beta1 or optimizer.beta2", "betas adam_betas"},
    KeyNames{"optimizer.beta1", "adam_beta1 b1"},
    KeyNames{"optimizer.beta2", "adam_beta2 b2"},
    KeyNames{"optimizer.epsilon", "eps adam_eps adam_epsilon"},
    KeyNames{"optimizer.weight_decay", "wd decay_weight"},
    KeyNames{"optimizer.clip_norm",
             "grad_clip clip_grad max_grad_norm max_norm gradient_clip_val gradient_clipping "
             "clip_grad_norm"},
    KeyNames{"schedule.kind",
             "lr_scheduler lr_scheduler_type scheduler lr_decay_style lr_schedule"},
    KeyNames{"schedule.warmup_steps",
             "warmup warmup_iters lr_warmup_steps lr_warmup_iters num_warmup_steps"},
    KeyNames{"schedule.final_ratio", "min_lr lr_min min_lr_ratio eta_min final_lr_frac",
             "It is a fraction of optimizer.learning_rate"},
    KeyNames{"schedule.decay_fraction", "cooldown_fraction decay_ratio warmdown_ratio"},
    KeyNames{"data.train", "dataset dataset_path data_path train_data train_data_path data_dir"},
    KeyNames{"data.validation", "val_data valid_data validation_data val_dataset eval_dataset"},
    KeyNames{"eval.every_steps",
             "eval_interval eval_steps eval_every eval_freq val_interval val_check_interval"},
    KeyNames{"eval.tokens", "eval_iters val_iters eval_batches", "It is a number of tokens"},
    KeyNames{"checkpoint.every_steps",
             "save_interval save_steps save_every checkpoint_interval "
             "ckpt_interval save_freq checkpoint_every"},
    KeyNames{"checkpoint.keep_last", "save_total_limit keep_latest_k max_checkpoints"},
    KeyNames{"log.every_steps", "log_interval logging_steps log_freq log_every"},
    KeyNames{"log.tensorboard", "tensorboard_dir enable_tensorboard use_tensorboard"},
    KeyNames{"precision.compute",
             "dtype torch_dtype mixed_precision precision compute_dtype mixed_precision_param"},
};
constexpr std::array kTableKeyNames{
    KeyNames{"layout", "parallel parallelism parallelisms mesh distributed dist"},
    KeyNames{"train", "training trainer job"},
    KeyNames{"optimizer", "optim adamw adam"},
    KeyNames{"schedule", "lr_scheduler scheduler lr_schedule learning_rate_scheduler"},
    KeyNames{"data", "dataset datasets data_stages dataloader"},
    KeyNames{"eval", "validation evaluation val"},
    KeyNames{"checkpoint", "checkpoints checkpointing save ckpt"},
    KeyNames{"log", "logging logs logger metrics tensorboard"},
    KeyNames{"precision", "dtype float8 mixed_precision"}};

bool has_word(std::string_view names, std::string_view word) {
  for (std::size_t at = 0; at <= names.size();) {
    const auto end = std::min(names.find(' ', at), names.size());
    if (names.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

const KeyNames* find_name(std::span<const KeyNames> all, std::string_view word) {
  const auto at =
      std::ranges::find_if(all, [&](const auto& one) { return has_word(one.names, word); });
  return at == all.end() ? nullptr : &*at;
}

// The last word of "--learning-rate=1" or "train.Learning_Rate": "learning_rate".
std::string last_word(std::string_view typed) {
  typed = typed.substr(0, typed.find('='));
  typed.remove_prefix(std::min(typed.find_first_not_of('-'), typed.size()));
  std::string word(typed.substr(typed.rfind('.') + 1));  // npos + 1 is 0
  for (auto& c : word)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

struct Meant {
  std::string keys;  // "eval.every_steps or log.every_steps"; empty: none
  std::string_view note{};
};

Meant meant_by(const std::string& word) {
  std::vector<std::string_view> same;
  for (const auto& option : options())
    if (option.name() == word) same.push_back(option.key);
  std::string keys;
  for (std::size_t i = 0; i < same.size(); ++i)
    keys += str(i == 0 ? "" : i + 1 < same.size() ? ", " : " or ", same[i]);
  if (!keys.empty()) return {keys};
  const auto* other = find_name(kKeyNames, word);
  return other == nullptr ? Meant{} : Meant{std::string(other->keys), other->note};
}

std::string question(std::string_view what, std::string_view note = "") {
  return str("; did you mean ", what, "?", note.empty() ? "" : " ", note);
}

constexpr const char* kReference = "; see `lockstep config --reference`";

}  // namespace

std::span<const KeyNames> key_names() {
  return kKeyNames;
}

std::string did_you_mean_key(std::string_view typed) {
  if (const auto meant = meant_by(last_word(typed)); !meant.keys.empty())
    return question(meant.keys, meant.note);
  std::vector<std::string> keys;
  for (const auto& option : options())
    keys.emplace_back(option.key);
  const auto near = nearest(typed, keys);
  return near.empty() ? kReference : question(near);
}

std::string did_you_mean_set(std::string_view flag) {
  const auto meant = meant_by(last_word(flag));
  const auto first = meant.keys.substr(0, meant.keys.find_first_of(", "));
  return first.empty() ? "" : question(str("--set ", first, "=VALUE"), meant.note);
}

std::string did_you_mean_variable(std::string_view variable,
                                  std::span<const std::string> variables) {
  const auto key = variable.find('_', variable.find('_') + 1) + 1;
  if (const auto meant = meant_by(last_word(variable.substr(key))); !meant.keys.empty())
    return question(meant.keys, meant.note);
  const auto near = nearest(variable, variables);
  return near.empty() ? kReference : question(near);
}

std::string did_you_mean_table(std::string_view typed) {
  if (const auto* other = find_name(kTableKeyNames, typed)) return question(other->keys);
  std::vector<std::string> tables;
  for (const auto& option : options())
    if (tables.empty() || tables.back() != option.table()) tables.emplace_back(option.table());
  const auto near = nearest(typed, tables);
  return near.empty() ? kReference : question(near);
}

}  // namespace lockstep
