// lockstep supervise starts the ranks of a run on several hosts, and starts them again after a
// failure.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/gpu.h"
#include "dist/job/secret.h"
#include "launch/device.h"
#include "launch/supervise/starter.h"
#include "launch/supervise/supervise.h"
#include "launch/verb.h"

namespace lockstep {
namespace {

struct SuperviseVerbOptions {
  std::vector<std::string> command;  // after "--"
  std::string hosts, on_bad_host, job, on_repeat = "stop";
  int need = 0, least = 0, spares = 0, slots = 0;
  int restarts = PolicyOptions().most_an_hour;
  std::int64_t wait = 300, rejoin = -1;  // -1: as long as wait
};

int slurm_number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

// Fills in what the flags do not say. `hosts`: of the launcher; 0: unknown.
void complete(SuperviseVerbOptions& o, int hosts) {
  if (o.need == 0) o.need = hosts - o.spares;
  if (hosts == 0 && o.need <= 0)
    throw ConfigError(
        "pass the number of hosts that train with --need, or start the agents with "
        "--hosts or srun");
  if (o.need < 1 || (hosts > 0 && o.need > hosts))
    throw ConfigError(str("the run needs ", o.need, " hosts, but there are ", hosts, " with ",
                          o.spares, " spares"));
  if (o.least == 0) o.least = o.need;
  if (o.rejoin < 0) o.rejoin = o.wait;
  if (o.least > o.need)
    throw ConfigError(str("--least ", o.least, " is more than the ", o.need, " hosts that train"));
}

int run_starter(SuperviseVerbOptions& o) {
  const auto list = read_hosts(o.hosts);
  complete(o, static_cast<int>(list.hosts.size()));
  if (o.slots == 0) o.slots = list.slots;
  std::vector<std::string> command{"supervise",
                                   str("--need=", o.need),
                                   str("--least=", o.least),
                                   str("--restarts-per-hour=", o.restarts),
                                   str("--wait=", o.wait),
                                   str("--rejoin=", o.rejoin),
                                   str("--job=", Secret::draw().hex().substr(0, 8))};
  if (o.slots > 0) command.push_back(str("--ranks-per-host=", o.slots));
  command.push_back("--on-repeat=" + o.on_repeat);
  if (!o.on_bad_host.empty()) command.push_back("--on-bad-host=" + o.on_bad_host);
  command.emplace_back("--");
  command.insert(command.end(), o.command.begin(), o.command.end());
  return start_agents(list.hosts, command);
}

int run_supervise(SuperviseVerbOptions o) {
  if (o.command.empty() || o.command.front() != "train")
    throw UsageError(
        "expected `-- train CONFIG.toml --run RUN` at the end; see `lockstep "
        "supervise --help`");
  const auto run = run_of(o.command);
  if (o.on_repeat != "stop" && o.on_repeat != "skip")
    throw UsageError(str("--on-repeat ", o.on_repeat, ": expected stop or skip"));
  if (o.on_repeat == "skip" && std::ranges::any_of(o.command, [](auto& word) {
        return word.starts_with("--skip-steps") || word.starts_with("--from-step");
      }))
    throw UsageError("--on-repeat skip may add --skip-steps; pass neither it nor --from-step");
  if (!o.hosts.empty()) return run_starter(o);
  complete(o, slurm_number("SLURM_STEP_NUM_NODES") > 0 ? slurm_number("SLURM_STEP_NUM_NODES") : 0);
  if (const char* job = std::getenv("SLURM_JOB_ID"); o.job.empty() && job != nullptr)
    o.job = str(job, ".", slurm_number("SLURM_RESTART_COUNT"));
  if (o.slots == 0)
    o.slots = device_of("best").kind == Device::Kind::cuda ? gpu::devices().count : 1;
  SuperviseOptions options{
      .run = run,
      .command = o.command,
      .on_bad_host = o.on_bad_host,
      .leader = {.job = o.job,
                 .need = o.need,
                 .least = o.least,
                 .slots = o.slots,
                 .gather = Milliseconds(1000 * o.wait),
                 .rejoin = Milliseconds(1000 * o.rejoin),
                 .policy = {.most_an_hour = o.restarts, .skips = o.on_repeat == "skip"}}};
  if (const char* names = std::getenv("LOCKSTEP_INTERFACE")) options.interfaces = names;
  return supervise(options);
}

}  // namespace

Verb supervise_verb() {
  constexpr double kMost = 1e6;
  auto o = std::make_shared<SuperviseVerbOptions>();
  return {
      "supervise",
      "train on several hosts, and restart after failures without a scheduler's help",
      {{"--hosts", &o->hosts, "Hosts", "FILE",
        "start an agent on each host of this file by ssh; lines: n1 slots=8 (without it, "
        "this process is the agent of this host)"},
       {"--spares", &o->spares, "Hosts", "N", "hosts that wait until another one fails",
        kWithDefault.within(0, kMost)},
       {"--need", &o->need, "Hosts", "N",
        "hosts that train (default: all hosts of --hosts or of srun, except --spares)",
        kRule.within(1, kMost)},
       {"--least", &o->least, "Hosts", "N",
        "fewest hosts that train, if --need hosts do not join within --wait (default: --need)",
        kRule.within(1, kMost)},
       {"--ranks-per-host", &o->slots, "Hosts", "N",
        "ranks of each host (default: slots of --hosts, else one per GPU, or 1 on CPUs)",
        kRule.within(1, kMost)},
       {"--wait", &o->wait, "Hosts", "SECONDS",
        "longest wait for hosts to join; if fewer than --least have joined by then, the run ends "
        "with exit code 75",
        kWithDefault.within(0, kMost)},
       {"--rejoin", &o->rejoin, "Hosts", "SECONDS",
        "time for hosts to join again after a failure (default: --wait)", kRule.within(0, kMost)},
       {"--restarts-per-hour", &o->restarts, "Hosts", "N",
        "end the run with exit code 1 if it would be restarted more often",
        kWithDefault.within(0, kMost)},
       {"--on-repeat", &o->on_repeat, "Hosts", "stop|skip",
        "if an error comes back at the same step on another host: end the run, or leave out the "
        "data of the step, once for each step",
        kWithDefault},
       {"--job", &o->job, "Hosts", "NAME",
        "name of the job; the leader refuses agents of another job (default: SLURM_JOB_ID)"},
       {"--on-bad-host", &o->on_bad_host, "Hosts", "COMMAND",
        "run this command once for each excluded host; %h is its name, %r the reason"}},
      [o] { return run_supervise(*o); },
      {},
      &o->command};
}

}  // namespace lockstep
