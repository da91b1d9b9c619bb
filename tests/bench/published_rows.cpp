#include "tests/bench/published_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/file.h"

namespace lockstep {
namespace {

using Recompute = PublishedRecompute;

constexpr std::array kColumns{"source",
                              "model",
                              "gpu",
                              "layers",
                              "hidden",
                              "ffn",
                              "heads",
                              "kv_heads",
                              "vocab",
                              "seq",
                              "n_gpus",
                              "dp",
                              "tp",
                              "pp",
                              "cp",
                              "notes",
                              "precision",
                              "recompute",
                              "micro_batch",
                              "global_batch_seqs",
                              "tokens_per_s_per_gpu",
                              "tflops_per_gpu",
                              "mfu_pct"};

// ---------------------------------------------------------------------------------- as it is said

// A line of CSV; quotes may enclose commas.
std::vector<std::string> cells(std::string_view line) {
  std::vector<std::string> found(1);
  bool is_quoted = false;
  for (const char c : line) {
    if (c == '"')
      is_quoted = !is_quoted;
    else if (c == ',' && !is_quoted)
      found.emplace_back();
    else if (c != '\r')
      found.back() += c;
  }
  return found;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](auto one) { return text.starts_with(one); });
}

double number(const PublishedRow& row, const char* column, double otherwise) {
  const std::string& text = row.says.at(column);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_number = end != text.c_str() && *end == '\0' && std::abs(value) < 1e9;
  return is_number ? value : otherwise;
}

int integer(const PublishedRow& row, const char* column, int otherwise) {
  return static_cast<int>(number(row, column, otherwise));
}

void require_size(const PublishedRow& row, const char* column) {
  const double value = number(row, column, 0);
  if (value < 1 || value != std::floor(value))
    throw Error(str("column ", column, " is '", row.says.at(column),
                    "'; expected an integer of 1 or more"));
}

const char* hardware_name(std::string_view gpu) {
  if (gpu.starts_with("A100"))
    return contains(gpu, "40G") ? "NVIDIA A100-SXM4-40GB" : "NVIDIA A100";
  if (contains(gpu, "500W")) return "NVIDIA H100 at 500 W";
  if (contains(gpu, "PCIe")) return "NVIDIA H100 PCIe";
  if (gpu.starts_with("GB200")) return "NVIDIA GB200";
  if (gpu.starts_with("B200")) return "NVIDIA B200";
  if (gpu.starts_with("H200")) return "NVIDIA H200";
  if (gpu.starts_with("H100")) return "NVIDIA H100";
  throw Error(str("column gpu is '", gpu, "'; expected A100, H100, H200, B200 or GB200"));
}

const char* engine_of(std::string_view source) {
  struct Word {
    const char *word, *engine;
  };
  constexpr std::array kWords{Word{"torchtitan", "torchtitan"},
                              Word{"pytorch.org", "torchtitan"},
                              Word{"llm-foundry", "foundry"},
                              Word{"picotron", "picotron"},
                              Word{"nanotron", "nanotron"},
                              Word{"tzafon", "nanotron"},
                              Word{"llm.c", "llmc"},
                              Word{"maxtext", "maxtext"},
                              Word{"paxml", "paxml"},
                              Word{"fms-fsdp", "fms"},
                              Word{"InternEvo", "internevo"},
                              Word{"Narayanan", "megatron21"},
                              Word{"MT-NLG", "megatron21"},
                              Word{"bigscience", "megatron21"},
                              Word{"Korthikanti", "megatron22"},
                              Word{"MegaScale", "megatron22"},
                              Word{"24.0", "nemo24"},
                              Word{"Megatron-LM README", "nemo24"},
                              Word{"Nemotron-4", "nemo24"},
                              Word{"NVIDIA", "nemo25"},
                              Word{"NeMo", "nemo25"},
                              Word{"Megatron", "nemo25"},
                              Word{"Llama 3", "llama3"},
                              Word{"2407.21783", "llama3"}};
  for (const auto& [word, engine] : kWords)
    if (contains(source, word)) return engine;
  return "other";
}

PublishedModel model_of(const PublishedRow& row) {
  const std::string_view name = row.model_name;
  if (contains(row.says.at("notes"), "MoE"))
    throw Error("is a mixture of experts; expected a dense model");
  PublishedModel m;
  for (const char* column : {"layers", "hidden", "ffn", "heads", "kv_heads", "vocab"})
    require_size(row, column);
  m = {integer(row, "layers", 0), integer(row, "hidden", 0),   integer(row, "ffn", 0),
       integer(row, "heads", 0),  integer(row, "kv_heads", 0), 0,
       integer(row, "vocab", 0)};
  // The pull request names no model. Its largest micro-batches, 12 without and 24 with cuDNN, are
  // those of GPT-2 XL in 80 GB; of smaller models far more fit.
  if (contains(row.says.at("source"), "llm.c PR #426")) m = {48, 1600, 6400, 25, 25, 64, 50257};
  m.head_size = m.width / m.heads;
  if (m.head_size < 1)
    throw Error(
        str("column hidden is '", row.says.at("hidden"), "'; expected at least heads, ", m.heads));
  m.sequence = integer(row, "seq", 8192);
  m.is_gated = !starts_with_any(name, {"GPT", "MPT", "Nemotron"});
  m.has_learned_positions = starts_with_any(name, {"MPT", "GPT"});
  m.is_tied = starts_with_any(name, {"MPT", "GPT-2", "GPT3", "GPT-177", "SmolLM3"}) ||
              (row.engine == "nanotron" && m.mlp < 10000);
  return m;
}

PublishedPrecision precision_of(const PublishedRow& row) {
  const std::string& text = row.says.at("precision");
  if (text == "fp8-rowwise") return PublishedPrecision::fp8_rowwise;
  if (text == "fp8" && row.engine != "torchtitan") return PublishedPrecision::fp8;
  return text.starts_with("fp8") ? PublishedPrecision::fp8_current : PublishedPrecision::bf16;
}

PublishedSharding sharding_of(const PublishedRow& row) {
  const std::string& notes = row.says.at("notes");
  const bool is_replicated = row.engine == "nanotron" || row.engine == "picotron";
  if (contains(notes, "ZeRO-0") || (is_replicated && !contains(notes, "ZeRO-1")))
    return PublishedSharding::none;
  if (contains(notes, "FSDP=8")) return PublishedSharding::full;
  if (contains(notes, "SHARD_GRAD_OP")) return PublishedSharding::optimizer;
  constexpr std::array kFull{"torchtitan", "foundry", "fms", "maxtext", "paxml"};
  return std::ranges::find(kFull, row.engine) != kFull.end() ? PublishedSharding::full
                                                             : PublishedSharding::optimizer;
}

Recompute recompute_of(const PublishedRow& row) {
  const std::string& all = row.says.at("recompute");
  const std::string text = all.substr(0, all.find(' '));
  if (text == "selective")
    return row.engine == "torchtitan" ? Recompute::half : Recompute::attention;
  if (text == "half") return Recompute::half;
  if (text == "attention") return Recompute::attention;
  if (text == "save_qkv") return Recompute::save_qkv;
  if (text == "full") return Recompute::full;
  if (text.empty() || text == "none") return Recompute::none;
  throw Error(str("column recompute is '", text,
                  "'; expected none, attention, selective, half, save_qkv or full"));
}

// Ranks that divide a weight, in runs of dgxc-benchmarking (its configure.sh); 0: all data ranks.
int shard_group(const PublishedRow& row, int gpus) {
  if (row.engine == "maxtext") return gpus >= 512 ? 128 : 0;
  if (row.engine == "paxml") return row.model.width > 4096 ? 128 : 8;
  const std::string& notes = row.says.at("notes");
  const auto at = notes.find("shard group = ");
  return at == std::string::npos ? 0 : std::max(0, std::atoi(notes.c_str() + at + 14));
}

PublishedLayout layout_of(const PublishedRow& row) {
  const auto at_least_1 = [&](const char* column) { return std::max(1, integer(row, column, 0)); };
  const std::string& notes = row.says.at("notes");
  PublishedLayout l{.gpus = integer(row, "n_gpus", 256)};
  l.tensor = at_least_1("tp");
  l.pipeline = at_least_1("pp");
  l.context = at_least_1("cp");
  if (const double ranks = static_cast<double>(l.tensor) * l.pipeline * l.context; ranks > l.gpus)
    throw Error(str("columns tp x pp x cp are ", l.tensor, " x ", l.pipeline, " x ", l.context,
                    "; expected at most n_gpus, ", l.gpus));
  l.data = l.gpus / (l.tensor * l.pipeline * l.context);
  if (const auto at = notes.find("VP="); at != std::string::npos)  // or "VP=n/a"
    l.chunks = std::max(1, std::atoi(notes.c_str() + at + 3));
  else if (row.engine == "llama3" && l.pipeline > 1)  // a layer a chunk
    l.chunks = static_cast<int>(row.model.layers + 2) / l.pipeline;
  l.micro_batch = integer(row, "micro_batch", 0);
  // torchtitan's pipeline cuts the local batch in micro-batches of one sequence
  if (row.engine == "torchtitan" && l.pipeline > 1) l.micro_batch = 1;
  l.global_batch = integer(row, "global_batch_seqs", 0);
  l.shard_group = shard_group(row, l.gpus);
  l.recompute = recompute_of(row);
  l.sharding = sharding_of(row);
  l.precision = precision_of(row);
  l.reads_shared_file = contains(row.says.at("source"), "llm.c PR #426");
  l.has_async_tensor = contains(notes, "async TP") || contains(notes, "AsyncTP");
  return l;
}

// Tokens a second a GPU; of a source with FLOP/s or MFU alone, by the FLOPs that it counts.
double published(const PublishedRow& row) {
  if (const double tokens = number(row, "tokens_per_s_per_gpu", 0); tokens > 0) return tokens;
  const double tflops = number(row, "tflops_per_gpu",
                               number(row, "mfu_pct", 0) / 100 * row.hardware().bf16_flops / 1e12);
  if (!(tflops > 0))
    throw Error(
        "columns tokens_per_s_per_gpu, tflops_per_gpu and mfu_pct are empty; expected one of them");
  return tflops * 1e12 / row.model.flops_a_token();
}

// "... 400 Gbit/s a node ..." of the notes; fms-fsdp's README states its networks in headings.
double host_gbit_per_second(const PublishedRow& row) {
  if (row.engine == "fms") return row.gpu == "NVIDIA A100" ? 400 : 800;
  const std::string& notes = row.says.at("notes");
  const auto at = notes.find(" Gbit/s a node");
  if (at == std::string::npos) return 0;
  const auto begin = notes.find_last_not_of("0123456789", at - 1);
  return std::atof(notes.c_str() + begin + 1);
}

bool states_all(const PublishedRow& row) {
  for (const char* column : {"n_gpus", "tp", "pp", "cp", "micro_batch", "global_batch_seqs"})
    if (integer(row, column, 0) == 0) return false;
  return row.has("dp");
}

// ------------------------------------------------------------------------------ what is left open

bool is_nemo(const PublishedRow& row) {
  return row.engine.starts_with("nemo");
}

std::vector<Recompute> recomputes(const PublishedRow& row) {
  if (row.says_recompute) return {row.layout.recompute};
  if (row.engine == "torchtitan") return {Recompute::half, Recompute::full};
  if (row.engine == "llmc") return {Recompute::none};
  if (row.engine == "megatron22") return {Recompute::attention, Recompute::full};
  // remat_policy of dgxc-benchmarking. SAVE_DOT_ONLY keeps the results of matmuls, so attention is
  // recomputed.
  if (row.engine == "paxml" && row.model.width <= 4096) return {Recompute::attention};
  if (row.engine == "maxtext" || row.engine == "paxml") return {Recompute::save_qkv};
  return {Recompute::none, Recompute::full};
}

// Sizes to try for one axis: the stated one, or powers of two for NeMo.
std::vector<int> degrees(const PublishedRow& row, const char* column, int stated, int most) {
  if (row.has(column)) return {stated};
  std::vector<int> found{1};
  while (is_nemo(row) && found.back() < most)
    found.push_back(2 * found.back());
  return found;
}

std::vector<int> chunk_counts(const PublishedRow& row, int pipeline) {
  const bool says_one = row.layout.pipeline == 1 && row.has("pp");
  if (contains(row.says.at("notes"), "VP") || !is_nemo(row) || says_one) return {row.layout.chunks};
  if (pipeline == 1) return {1};
  std::vector<int> found;
  for (int v = 1; v <= 16; ++v)
    if (row.model.layers % (pipeline * v) == 0 || (row.model.layers + 2) % (pipeline * v) == 0)
      found.push_back(v);
  return found.empty() ? std::vector{1} : found;
}

// Fills the rest of a layout whose axes and micro-batch are decided. Returns false if the GPUs or
// the global batch do not divide.
bool complete(const PublishedRow& row, PublishedLayout& l) {
  const int model_ranks = l.tensor * l.pipeline * l.context;
  if (l.gpus % model_ranks != 0) return false;
  l.data = l.gpus / model_ranks;
  const int each = l.data * l.micro_batch;
  if (row.has("global_batch_seqs") && row.engine != "foundry" && l.global_batch % each != 0)
    return false;
  if (l.global_batch == 0) l.global_batch = each * (is_nemo(row) ? 32 : 1);
  return true;
}

std::vector<PublishedLayout> candidates(const PublishedRow& row) {
  const std::vector<int> micro_batches = row.has("micro_batch")
                                             ? std::vector{row.layout.micro_batch}
                                             : std::vector{1, 2, 3, 4, 6, 8, 12};
  std::vector<PublishedLayout> found;
  for (const int tensor : degrees(row, "tp", row.layout.tensor, 8))
    for (const int pipeline : degrees(row, "pp", row.layout.pipeline, 16))
      for (const Recompute recompute : recomputes(row))
        for (const int micro_batch : micro_batches) {
          PublishedLayout l = row.layout;
          l.tensor = tensor;
          l.pipeline = pipeline;
          l.recompute = recompute;
          l.micro_batch = micro_batch;
          if (!complete(row, l)) continue;
          for (const int chunks : chunk_counts(row, pipeline)) {
            l.chunks = chunks;
            found.push_back(l);
          }
        }
  if (found.empty())
    throw Error("no layout has these n_gpus, tp, pp, cp, micro_batch and global_batch_seqs");
  return found;
}

double state_bytes(const PublishedModel& m, const PublishedLayout& l) {
  const auto table = static_cast<double>(m.vocabulary * m.width);
  const double tables = l.pipeline > 1 || m.is_tied ? 1 : 2;
  const double parameters =
      static_cast<double>(m.layers) / l.pipeline * m.layer_parameters() / l.tensor +
      tables * table / l.tensor;
  if (l.sharding == PublishedSharding::none) return 20 * parameters;
  if (l.sharding == PublishedSharding::optimizer)
    return 4 * parameters + 12 * parameters / l.data_ranks();  // gradients in bf16
  return 16 * parameters / l.group() + 6 * (m.layer_parameters() + table) / l.tensor;
}

// Fills all fields except `number` from the cells. Throws Error if they are not enough.
void read_row(PublishedRow& row) {
  for (const char* column : {"seq", "n_gpus", "tp", "pp", "cp", "micro_batch", "global_batch_seqs"})
    if (row.has(column)) require_size(row, column);
  row.model_name = row.says["model"];
  row.engine = engine_of(row.says["source"]);
  if (row.engine == "llmc" && contains(row.says["notes"], "no cuDNN")) row.engine = "llmc_unfused";
  row.gpu = hardware_name(row.says["gpu"]);
  row.model = model_of(row);
  row.layout = layout_of(row);
  row.tokens_per_second = published(row);
  row.host_gbit_per_second = host_gbit_per_second(row);
  row.is_stated = states_all(row);
  row.says_recompute = row.has("recompute");
}

}  // namespace

Hardware PublishedRow::hardware() const {
  Hardware hardware = *find_hardware(gpu);
  constexpr double kPayload = 46e9 / 400;  // bytes of a Gbit, see core/system/hardware.cpp
  if (host_gbit_per_second > 0) hardware.nic_bytes_per_second = host_gbit_per_second / 8 * kPayload;
  return hardware;
}

std::vector<PublishedRow> read_published_rows(const std::filesystem::path& csv) {
  const std::string text = read_text(csv, 1 << 20);
  if (text.empty())
    throw Error(str(csv.string(), ": is empty; write the columns in the first line"));
  std::vector<std::string> header;
  std::vector<PublishedRow> rows;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  for (std::size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
       at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const auto line = cells(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (line == std::vector<std::string>{""}) continue;
    if (header.empty()) {
      header = line;
      for (const char* column : kColumns)
        if (std::ranges::find(header, column) == header.end())
          throw Error(str(csv.string(), ": has no column ", column, "; add it to the first line"));
      continue;
    }
    PublishedRow row;
    row.number = static_cast<int>(rows.size()) + 1;
    for (std::size_t i = 0; i < header.size(); ++i)
      row.says[header[i]] = i < line.size() ? line[i] : "";
    try {
      if (line.size() != header.size())
        throw Error(str("has ", line.size(), " cells; expected ", header.size()));
      read_row(row);
    } catch (const Error& error) {
      row.problem = error.what();
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

double memory_bytes(const PublishedModel& m, const PublishedLayout& l) {
  const double tokens =
      static_cast<double>(l.micro_batch) * static_cast<double>(m.sequence) / l.context / l.tensor;
  const auto D = static_cast<double>(m.width), F = static_cast<double>(m.mlp);
  const auto q = static_cast<double>(m.heads * m.head_size);
  const auto k = static_cast<double>(m.kv_heads * m.head_size);
  double whole = 8 * D + 4 * q + 4 * k + (m.is_gated ? 6 : 4) * F;
  if (l.precision != PublishedPrecision::bf16) whole *= 0.75;
  double kept = whole;
  if (l.recompute == Recompute::half) kept = 0.55 * whole;
  if (l.recompute == Recompute::save_qkv) kept = 2 * D + 2 * q + 4 * k;
  if (l.recompute == Recompute::full) kept = 2 * D;
  const double p = l.pipeline, layers = static_cast<double>(m.layers);
  const double under_way =
      l.pipeline == 1
          ? layers
          : layers / p * std::min<double>(l.micro_batches(), p * (1 + (p - 1) / (p * l.chunks)));
  const double logits = l.pipeline == 1 ? 6 * tokens * static_cast<double>(m.vocabulary) : 0;
  const double again = l.recompute == Recompute::none ? 0 : tokens * whole;
  return state_bytes(m, l) + tokens * kept * under_way + logits + 4e9 + again;
}

PublishedLayout resolved_layout(const PublishedRow& row, const PublishedConstants& constants) {
  if (!row.problem.empty()) throw Error(row.problem);
  const auto all = candidates(row);
  const double room = 0.97 * static_cast<double>(row.hardware().hbm_bytes);
  const PublishedLayout *fastest = nullptr, *smallest = nullptr;
  double most = 0, least = std::numeric_limits<double>::infinity();
  for (const auto& layout : all) {
    const double bytes = memory_bytes(row.model, layout);
    if (bytes < least) {
      smallest = &layout;
      least = bytes;
    }
    if (bytes > room || all.size() == 1) continue;
    const double rate =
        price_run(row.model, layout, row.hardware(), published_engine(row.engine), constants)
            .tokens_per_second;
    if (rate > most) {
      fastest = &layout;
      most = rate;
    }
  }
  return fastest != nullptr ? *fastest : *smallest;
}

std::vector<KorthikantiCase> korthikanti_cases() {
  const auto one = [](const char* name, std::int64_t width, std::int64_t heads, std::int64_t layers,
                      int pipeline, int chunks, int gpus, int batch, int micro_batch, double full,
                      double selective) {
    PublishedModel model{.layers = layers,
                         .width = width,
                         .mlp = 4 * width,
                         .heads = heads,
                         .kv_heads = heads,
                         .head_size = width / heads,
                         .vocabulary = 51200,
                         .sequence = 2048,
                         .is_gated = false,
                         .has_learned_positions = true,
                         .is_tied = true};
    PublishedLayout layout{.gpus = gpus,
                           .tensor = 8,
                           .pipeline = pipeline,
                           .chunks = chunks,
                           .micro_batch = micro_batch,
                           .global_batch = batch,
                           .sharding = PublishedSharding::none};
    return KorthikantiCase{name, model, layout, full, selective};
  };
  return {one("22B", 6144, 64, 48, 1, 1, 8, 4, 4, 1.42, 1.10),
          one("175B", 12288, 96, 96, 8, 3, 64, 64, 1, 18.13, 13.75),
          one("530B", 20480, 128, 105, 35, 3, 280, 280, 1, 49.05, 37.83),
          one("1T", 25600, 160, 128, 64, 1, 512, 512, 1, 94.42, 71.49),
          one("1T, v = 2", 25600, 160, 128, 64, 2, 512, 512, 1, 94.42, 71.49)};
}

}  // namespace lockstep
