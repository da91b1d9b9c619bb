#include "launch/plan/run_costs.h"

#include <algorithm>
#include <cmath>

#include "train/run/memory_budget.h"

namespace lockstep {
namespace {

double real(std::int64_t value) {
  return static_cast<double>(value);
}

// Share of the time spent on training, with a checkpoint every `interval` seconds of steps. A
// checkpoint costs C and is complete S seconds after its start. A restart takes R and resumes from
// the last complete checkpoint (Daly 2006, equation 13, which has S = C).
double goodput_of(double interval, double C, double S, double R, double M) {
  return interval / (M * std::exp((R + S - C) / M) * std::expm1((interval + C) / M));
}

// Interval with the highest goodput (Daly 2006, equation 37).
double best_interval_of(double C, double M) {
  const double share = C / (2 * M);
  if (share >= 1) return M;
  return std::sqrt(2 * C * M) * (1 + std::sqrt(share) / 3 + share / 9) - C;
}

// Least interval between saves: a save waits until the previous one is written.
double least_interval_of(const SaveTimes& save, double M) {
  return save.copies ? std::min(save.write_seconds, M) : 0;
}

// Measured with tests/bench/checkpoint_bench on two cores of a cloud host: a rank hashes and writes
// to memory, and a host sends to its partner through one TCP connection.
constexpr double kMemoryBytesPerSecond = 1e9, kStreamBytesPerSecond = 1e9;

double local_stream_rate(const Cluster& cluster, double ranks_of_node) {
  return std::min(kStreamBytesPerSecond, cluster.hardware.nic_bytes_per_second * ranks_of_node);
}

LocalSaves local_saves(const Config& c, const Cluster& cluster, const Estimate& e,
                       const RunCosts& costs) {
  LocalSaves local;
  if (c.checkpoint.local_directory.empty()) return local;
  const double ranks_of_node = real(e.room.ranks);
  const bool copies = c.checkpoint.partner_copies && e.save.nodes > 1;
  local.bytes = e.save.bytes * e.room.ranks / e.ranks;
  local.kept_bytes = local.bytes * (copies ? 4 : 2);
  const double sent = copies ? real(local.bytes) : 0;
  local.save_seconds = e.save.copy_seconds +
                       real(local.bytes) / ranks_of_node / kMemoryBytesPerSecond +
                       (copies ? sent / local_stream_rate(cluster, ranks_of_node) : 0);
  const double wanted = c.checkpoint.every_seconds > 0
                            ? std::min(real(c.checkpoint.every_seconds), e.save.interval_seconds)
                            : e.save.interval_seconds;
  const double steps = std::ceil(std::max(wanted, local.save_seconds) / costs.step_seconds - 1e-9);
  local.interval_seconds = steps * costs.step_seconds;
  local.stall_seconds =
      std::max((e.save.copies ? e.save.copy_seconds : local.save_seconds) - e.save.hidden_seconds,
               0.0) +
      e.save.next_stall_seconds * local.interval_seconds / e.save.interval_seconds;
  if (copies)
    local.network_share =
        sent / local.interval_seconds / (cluster.hardware.nic_bytes_per_second * ranks_of_node);
  local.lost_seconds = local.interval_seconds / 2 + local.save_seconds + cluster.restart_seconds;
  return local;
}

// The checkpoints that survive the loss of a host.
struct SafeSaves {
  double interval_seconds = 0, stall_seconds = 0, whole_after_seconds = 0;
};
SafeSaves safe_saves(const SaveTimes& save, const LocalSaves& local) {
  if (local.survive()) return {local.interval_seconds, local.stall_seconds, local.save_seconds};
  return {save.interval_seconds, save.stall_seconds(), save.whole_after_seconds()};
}

class Explanation {
 public:
  Explanation(const Config& config, const Cluster& cluster, const Estimate& estimate,
              std::optional<double> run_seconds)
      : c_(config),
        cluster_(cluster),
        e_(estimate),
        has_phases_(run_seconds.has_value()),
        costs_(run_costs(config, cluster, estimate, run_seconds)) {}

  std::vector<Formula> formulas() {
    model();
    step();
    memory();
    checkpoints();
    local_checkpoints();
    goodput();
    run();
    return std::move(formulas_);
  }

 private:
  void add(std::string name, std::string text, std::vector<Formula::Input> inputs, double value,
           std::string unit) {
    formulas_.push_back(
        {std::move(name), std::move(text), std::move(inputs), value, std::move(unit)});
  }

  void model() {
    const auto& m = c_.model;
    const auto flops = flops_per_token(m, c_.train.sequence_length);
    ModelConfig one = m, none = m;
    one.layers = 1;
    none.layers = 0;
    const double tables = real(m.vocabulary * m.width) * (m.tied_head ? 1 : 2) +
                          (m.learned_positions ? real(m.max_positions * m.width) : 0.0);
    const double head = real(m.vocabulary * m.width);
    const double matrices = real(matmul_parameters(one)) - head;
    const double vectors = real(parameter_count(one)) - real(parameter_count(none)) - matrices;
    const Formula::Input D{"D", real(m.width)}, H{"H", real(m.heads)}, G{"G", real(m.kv_heads)},
        K{"K", real(m.head_size)}, F{"F", real(m.mlp_width)}, V{"V", real(m.vocabulary)},
        L{"L", real(m.layers)}, T{"T", real(c_.train.sequence_length)};
    add("layer_matrices", "D * (H + 2 * G) * K + H * K * D + mlp_matrices * D * F",
        {D, H, G, K, F, {"mlp_matrices", m.is_gated() ? 3.0 : 2.0}}, matrices, "weights");
    add("parameters", "tables + L * (layer_matrices + layer_vectors) + last_norm",
        {{"tables", tables},
         L,
         {"layer_matrices", matrices},
         {"layer_vectors", vectors},
         {"last_norm", real(parameter_count(none)) - tables}},
        real(parameter_count(m)), "weights");
    add("matmul_parameters", "L * layer_matrices + V * D", {L, {"layer_matrices", matrices}, V, D},
        real(matmul_parameters(m)), "weights");
    const Formula::Input weights{"matmul_parameters", real(matmul_parameters(m))};
    add("flops_per_token", "6 * matmul_parameters + 6 * L * H * K * T", {weights, L, H, K, T},
        flops.causal, "FLOP");
    add("flops_per_token_square", "6 * matmul_parameters + 12 * L * H * K * T",
        {weights, L, H, K, T}, flops.square, "FLOP");
  }

  void step() {
    data();
    std::string sum;
    std::vector<Formula::Input> parts;
    for (std::size_t i = 0; i < kComponents; ++i) {
      if (e_.time.seconds[i] == 0) continue;
      const auto* part = name(static_cast<Component>(i));
      sum += str(sum.empty() ? "" : " + ", part);
      parts.push_back({part, e_.time.seconds[i]});
    }
    add("step_seconds", sum, std::move(parts), e_.time.total(), "s");
    add("step_without_checkpoints", "step_seconds - checkpoint",
        {{"step_seconds", e_.time.total()}, {"checkpoint", e_.time[Component::checkpoint]}},
        costs_.step_seconds, "s");
    add("tokens_per_second", "batch_tokens / step_seconds",
        {{"batch_tokens", real(c_.train.batch_tokens)}, {"step_seconds", e_.time.total()}},
        e_.tokens_per_second, "tokens/s");
    if (std::isfinite(e_.mfu.causal)) {
      mfu("mfu", "flops_per_token", e_.meter.flops_per_token, e_.mfu.causal);
      mfu("mfu_square", "flops_per_token_square", e_.meter.flops_per_token_square, e_.mfu.square);
    }
  }

  void data() {
    if (cluster_.storage_read_bytes_per_second <= 0) return;
    StepTime beside = e_.time;  // time in which data are read
    beside[Component::data] = beside[Component::checkpoint] = 0;
    add("data",
        "max(token_bytes * batch_tokens * ranks_of_node / ranks / read_per_second - "
        "step_without_waits, 0)",
        {{"token_bytes", c_.model.vocabulary <= 1 << 16 ? 2.0 : 4.0},
         {"batch_tokens", real(c_.train.batch_tokens)},
         {"ranks_of_node", real(e_.room.ranks)},
         {"ranks", real(e_.ranks)},
         {"read_per_second", cluster_.storage_read_bytes_per_second},
         {"step_without_waits", beside.total()}},
        e_.time[Component::data], "s");
  }

  void mfu(const char* name, const std::string& flops, double count, double value) {
    const Formula::Input rate{"tokens_per_second", e_.tokens_per_second}, all{flops, count},
        peak{"peak_flops", e_.meter.peak_flops};
    if (e_.meter.fp8_flops_per_token == 0)
      return add(name, str("tokens_per_second * ", flops, " / peak_flops"), {rate, all, peak},
                 value, "");
    add(name,
        str("tokens_per_second * ((", flops,
            " - fp8_flops_per_token) / peak_flops + fp8_flops_per_token / fp8_peak_flops)"),
        {rate,
         all,
         {"fp8_flops_per_token", e_.meter.fp8_flops_per_token},
         peak,
         {"fp8_peak_flops", e_.meter.fp8_peak_flops}},
        value, "");
  }

  void memory() {
    std::string sum;
    std::vector<Formula::Input> parts;
    for (std::size_t i = 0; i < kPurposes; ++i) {
      const auto* part = name(static_cast<Purpose>(i));
      sum += str(sum.empty() ? "" : " + ", part);
      parts.push_back({part, real(e_.by_purpose[i])});
    }
    if (cluster_.device == Device::Kind::cpu) {  // host copies use the same memory
      sum += " + host_copies";
      parts.push_back({"host_copies", real(e_.bytes.sum().pinned)});
    }
    if (e_.bytes.nccl > 0) {
      sum += " + nccl";
      parts.push_back({"nccl", real(e_.bytes.nccl)});
    }
    parts.push_back({"constants", real(e_.constant_bytes)});
    add("device_bytes", sum + " + constants", std::move(parts), real(e_.needed_bytes()), "B");
    const double element = real(bytes_per_element(c_.precision.compute));
    add("cache_bytes_per_token", "2 * L * G * K * element",
        {{"L", real(c_.model.layers)},
         {"G", real(c_.model.kv_heads)},
         {"K", real(c_.model.head_size)},
         {"element", element}},
        real(costs_.cache_bytes_per_token), "B");
  }

  void checkpoints() {
    const auto& save = e_.save;
    const double weights = real(parameter_count(c_.model));
    const double moment = real(bytes_per_element(c_.precision.moments));
    add("checkpoint_bytes", "parameters * (weight + 2 * moment)",
        {{"parameters", weights},
         {"weight", real(save.bytes) / weights - 2 * moment},
         {"moment", moment}},
        real(save.bytes), "B");
    add("save_copy_seconds", "checkpoint_bytes / ranks / copied_per_second",
        {{"checkpoint_bytes", real(save.bytes)},
         {"ranks", real(e_.ranks)},
         {"copied_per_second", save.copied_per_second}},
        save.copy_seconds, "s");
    if (save.write_seconds > 0)
      add("save_write_seconds", "checkpoint_bytes * ranks_of_node / ranks / written_per_second",
          {{"checkpoint_bytes", real(save.bytes)},
           {"ranks_of_node", real(e_.room.ranks)},
           {"ranks", real(e_.ranks)},
           {"written_per_second", cluster_.storage_write_bytes_per_second}},
          save.write_seconds, "s");
    const double interval = save.interval_seconds;
    add("hidden_seconds", "step_without_checkpoints - optimizer",
        {{"step_without_checkpoints", costs_.step_seconds},
         {"optimizer", e_.time[Component::optimizer]}},
        save.hidden_seconds, "s");
    add("interval_seconds", "interval_steps * step_without_checkpoints",
        {{"interval_steps", real(save.interval_steps)},
         {"step_without_checkpoints", costs_.step_seconds}},
        interval, "s");
    const Formula::Input written{"save_write_seconds", save.write_seconds};
    if (save.copies)
      add("save_stall_seconds",
          "max(save_copy_seconds - hidden_seconds, 0) + max(save_write_seconds - interval_seconds, "
          "0)",
          {{"save_copy_seconds", save.copy_seconds},
           {"hidden_seconds", save.hidden_seconds},
           written,
           {"interval_seconds", interval}},
          save.stall_seconds(), "s");
    else
      add("save_stall_seconds", "max(save_write_seconds - hidden_seconds, 0)",
          {written, {"hidden_seconds", save.hidden_seconds}}, save.stall_seconds(), "s");
    add("write_bytes_per_second", "checkpoint_bytes / interval_seconds",
        {{"checkpoint_bytes", real(save.bytes)}, {"interval_seconds", interval}},
        costs_.write_bytes_per_second, "B/s");
    add("interruption_seconds", "gpu_hours_per_interruption * 3600 / ranks",
        {{"gpu_hours_per_interruption", cluster_.gpu_hours_per_interruption},
         {"ranks", real(e_.ranks)}},
        costs_.interruption_seconds, "s");
    if (save.copies)
      add("whole_after_seconds", "save_copy_seconds + save_write_seconds",
          {{"save_copy_seconds", save.copy_seconds}, written}, save.whole_after_seconds(), "s");
    else
      add("whole_after_seconds", "save_write_seconds", {written}, save.whole_after_seconds(), "s");
  }

  void goodput() {
    const auto& save = e_.save;
    const Formula::Input M{"M", costs_.interruption_seconds}, R{"R", cluster_.restart_seconds};
    const std::string goodput = "t / (M * exp((R + S - C) / M) * expm1((t + C) / M))";
    const auto safe = safe_saves(save, costs_.local);
    add("goodput", goodput,
        {{"C", safe.stall_seconds},
         {"t", safe.interval_seconds},
         {"S", safe.whole_after_seconds},
         R,
         M},
        costs_.goodput, "");
    if (!(costs_.best_interval_seconds > 0)) return;
    const Formula::Input C{"C", save.update_stall_seconds};
    const bool is_long = C.value >= 2 * M.value;
    add("best_interval_seconds",
        str("max(", is_long ? "M" : "sqrt(2 * C * M) * (1 + sqrt(C / 2 / M) / 3 + C / 18 / M) - C",
            ", max(least, step_without_checkpoints))"),
        {C,
         M,
         {"least", least_interval_of(save, M.value)},
         {"step_without_checkpoints", costs_.step_seconds}},
        costs_.best_interval_seconds, "s");
    const double best = costs_.best_interval_seconds;
    add("best_goodput", goodput,
        {{"C", C.value + save.next_stall_after(best)},
         {"t", best},
         {"S", save.whole_after_seconds()},
         R,
         M},
        costs_.best_goodput, "");
  }

  void local_checkpoints() {
    const auto& local = costs_.local;
    if (local.bytes == 0) return;
    const bool copies = local.survive();
    const Formula::Input bytes{"local_bytes", real(local.bytes)},
        ranks_of_node{"ranks_of_node", real(e_.room.ranks)},
        interval{"local_interval_seconds", local.interval_seconds},
        save{"local_save_seconds", local.save_seconds};
    add("local_bytes", "checkpoint_bytes * ranks_of_node / ranks",
        {{"checkpoint_bytes", real(e_.save.bytes)}, ranks_of_node, {"ranks", real(e_.ranks)}},
        real(local.bytes), "B");
    add("local_kept_bytes", copies ? "4 * local_bytes" : "2 * local_bytes", {bytes},
        real(local.kept_bytes), "B");
    std::vector<Formula::Input> parts{{"save_copy_seconds", e_.save.copy_seconds},
                                      bytes,
                                      ranks_of_node,
                                      {"memory_per_second", kMemoryBytesPerSecond}};
    if (copies)
      parts.push_back({"sent_per_second", local_stream_rate(cluster_, real(e_.room.ranks))});
    add("local_save_seconds",
        str("save_copy_seconds + local_bytes / ranks_of_node / memory_per_second",
            copies ? " + local_bytes / sent_per_second" : ""),
        std::move(parts), local.save_seconds, "s");
    add("local_interval_seconds", "local_interval_steps * step_without_checkpoints",
        {{"local_interval_steps", std::round(local.interval_seconds / costs_.step_seconds)},
         {"step_without_checkpoints", costs_.step_seconds}},
        local.interval_seconds, "s");
    local_stall();
    if (copies)
      add("local_network_share",
          "local_bytes / local_interval_seconds / (nic_per_second * ranks_of_node)",
          {bytes,
           interval,
           {"nic_per_second", cluster_.hardware.nic_bytes_per_second},
           ranks_of_node},
          local.network_share, "");
    add("local_lost_seconds", "local_interval_seconds / 2 + local_save_seconds + R",
        {interval, save, {"R", cluster_.restart_seconds}}, local.lost_seconds, "s");
  }

  void local_stall() {
    const auto& local = costs_.local;
    const Formula::Input interval{"local_interval_seconds", local.interval_seconds},
        hidden{"hidden_seconds", e_.save.hidden_seconds},
        write{"save_write_seconds", e_.save.write_seconds},
        run_interval{"interval_seconds", e_.save.interval_seconds};
    if (e_.save.copies)
      add("local_stall_seconds",
          "max(save_copy_seconds - hidden_seconds, 0) + max(save_write_seconds - "
          "interval_seconds, 0) * local_interval_seconds / interval_seconds",
          {{"save_copy_seconds", e_.save.copy_seconds}, hidden, write, interval, run_interval},
          local.stall_seconds, "s");
    else
      add("local_stall_seconds", "max(local_save_seconds - hidden_seconds, 0)",
          {{"local_save_seconds", local.save_seconds}, hidden}, local.stall_seconds, "s");
  }

  void run() {
    if (!has_phases_)
      add("run_seconds", "steps * step_without_checkpoints",
          {{"steps", real(c_.train.steps)}, {"step_without_checkpoints", costs_.step_seconds}},
          costs_.run_seconds, "s");
    if (costs_.goodput > 0)
      add("wall_seconds", "run_seconds / goodput + last_save_seconds",
          {{"run_seconds", costs_.run_seconds},
           {"goodput", costs_.goodput},
           {"last_save_seconds", costs_.last_save_seconds}},
          costs_.wall_seconds, "s");
    const Formula::Input ranks{"ranks", real(e_.ranks)}, wall{"wall_seconds", costs_.wall_seconds};
    if (costs_.energy_joules > 0)
      add("energy_joules", "watts * ranks * wall_seconds", {{"watts", cluster_.watts}, ranks, wall},
          costs_.energy_joules, "J");
    if (costs_.price > 0)
      add("price", "price_per_gpu_hour * ranks * wall_seconds / 3600",
          {{"price_per_gpu_hour", cluster_.price_per_gpu_hour}, ranks, wall}, costs_.price,
          cluster_.currency);
  }

  const Config& c_;
  const Cluster& cluster_;
  const Estimate& e_;
  bool has_phases_;
  RunCosts costs_;
  std::vector<Formula> formulas_;
};

}  // namespace

RunCosts run_costs(const Config& c, const Cluster& cluster, const Estimate& e,
                   std::optional<double> run_seconds) {
  RunCosts costs;
  costs.step_seconds = e.time.total() - e.time[Component::checkpoint];
  costs.run_seconds = run_seconds.value_or(real(c.train.steps) * costs.step_seconds);
  costs.write_bytes_per_second = real(e.save.bytes) / e.save.interval_seconds;
  costs.interruption_seconds = cluster.gpu_hours_per_interruption * 3600 / e.ranks;
  const double W = e.save.write_seconds, S = e.save.whole_after_seconds(),
               M = costs.interruption_seconds, R = cluster.restart_seconds;
  costs.local = local_saves(c, cluster, e, costs);
  const auto safe = safe_saves(e.save, costs.local);
  costs.goodput =
      goodput_of(safe.interval_seconds, safe.stall_seconds, safe.whole_after_seconds, R, M);
  if (W > 0) {
    const double C = e.save.update_stall_seconds;
    costs.best_interval_seconds =
        std::max({best_interval_of(C, M), least_interval_of(e.save, M), costs.step_seconds});
    costs.best_interval_steps =
        static_cast<std::int64_t>(std::ceil(costs.best_interval_seconds / costs.step_seconds));
    const double stall = C + e.save.next_stall_after(costs.best_interval_seconds);
    costs.best_goodput = goodput_of(costs.best_interval_seconds, stall, S, R, M);
  }
  // Goodput has the stall of each save, also of the last.
  costs.last_save_seconds = std::max(S - e.save.stall_seconds(), 0.0);
  if (costs.goodput > 0)
    costs.wall_seconds = costs.run_seconds / costs.goodput + costs.last_save_seconds;
  costs.cache_bytes_per_token = 2 * c.model.layers * c.model.kv_heads * c.model.head_size *
                                bytes_per_element(c.precision.compute);
  costs.energy_joules = cluster.watts * e.ranks * costs.wall_seconds;
  costs.price = cluster.price_per_gpu_hour * e.ranks * costs.wall_seconds / 3600;
  return costs;
}

std::vector<Formula> explain(const Config& config, const Cluster& cluster, const Estimate& estimate,
                             std::optional<double> run_seconds) {
  return Explanation(config, cluster, estimate, run_seconds).formulas();
}

}  // namespace lockstep
