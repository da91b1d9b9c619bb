// lockstep ctl sends requests to a run while it trains, and shows its state.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "checkpoint/directory.h"
#include "checkpoint/epochs.h"
#include "core/file.h"
#include "core/log.h"
#include "core/nearest.h"
#include "core/units.h"
#include "launch/key_names.h"
#include "launch/options.h"
#include "launch/verb.h"
#include "launch/watch/line.h"
#include "train/observe/ledger.h"
#include "train/run/amendments.h"
#include "train/run/requests.h"
#include "train/run_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct CtlVerbOptions {
  fs::path run;
  std::string command;
  std::vector<std::string> arguments;
  std::optional<std::int64_t> at;
  std::string skip;
  bool yes = false, is_dry_run = false, no_wait = false;
  double timeout_seconds = 600;
};

constexpr std::int64_t kMostLogBytes = std::int64_t{1} << 28;

std::string time_text(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  localtime_r(&time, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

// Calls act for each complete line of the audit trail.
void for_each_act(const ControlDirectory& control, FunctionRef<void(const Json& line)> act) {
  if (!path_exists(control.log())) return;
  auto text = read_text(control.log(), kMostLogBytes);
  text.resize(text.rfind('\n') + 1);
  for_each_json_line(text, control.log().string(),
                     [&](const Json& line, std::int64_t) { act(line); });
}

int print_log(const ControlDirectory& control) {
  for_each_act(control, [](const Json& line) {
    const Json& request = line.at("request");
    std::string words = text_at(request, "command");
    for (const auto& setting : request.at("settings").as_array())
      words += " " + setting.as_string();
    for (const char* member : {"skip", "target"})
      if (const auto& text = text_at(request, member); !text.empty()) words += " " + text;
    if (const auto step = request.at("step").as_integer(); step > 0) words += str(" ", step);
    const auto& message = text_at(line, "message");
    std::cout << printable(str(time_text(line.at("time").as_double()), "  ",
                               request.at("number").as_integer(), "  ", text_at(request, "user"),
                               "@", text_at(request, "host"), "  ", words,
                               request.at("dry_run").as_bool() ? " (dry run)" : "", ": ",
                               text_at(line, "outcome"), " after step ",
                               line.at("step").as_integer(), message.empty() ? "" : ": " + message))
              << "\n";
  });
  return 0;
}

// Whether the last request of the run's current start paused it.
bool is_paused(const ControlDirectory& control, std::int64_t epoch) {
  bool paused = false;
  for_each_act(control, [&](const Json& line) {
    const auto& command = text_at(line.at("request"), "command");
    const bool is_done =
        text_at(line, "outcome") == "done" && !line.at("request").at("dry_run").as_bool();
    if (line.at("epoch").as_integer() != epoch || (is_done && command == "resume"))
      paused = false;
    else if (is_done && command == "pause")
      paused = true;
  });
  return paused;
}

std::string list_of(const std::vector<std::int64_t>& steps) {
  std::string text;
  for (const auto step : steps)
    text += str(text.empty() ? "" : ", ", step);
  return text.empty() ? "none" : text;
}

void print(const char* label, const std::string& value) {
  std::cout << padded(label, 16) << printable(value) << "\n";
}

constexpr std::int64_t kMostStatusBytes = 4 << 20;

int print_status(const fs::path& run) {
  const ControlDirectory control(run);
  const auto trainer = trainer_of(run);
  const auto epoch = EpochRecord::newest(run / "checkpoints");
  const auto number = epoch ? epoch->number : 0;
  try {
    for (const auto& line : state_of_run(run))
      std::cout << line << "\n";
  } catch (const DataError& error) {  // before the first step
    print("steps", error.what());
  }
  print("process", trainer ? *trainer : "none trains in this directory");
  if (trainer) print("paused", is_paused(control, number) ? "yes" : "no");
  const auto steps = checkpoint_steps(run / "checkpoints");
  print("checkpoints", list_of(steps));
  Json about = newest_about({run / "checkpoints"});
  if (const auto file = AmendmentFile::read(run / "amendments.json"); about.is_object()) {
    const auto of_checkpoint = amendments_in(about);
    const auto all = file ? file->with(of_checkpoint) : of_checkpoint;
    print("kept by save", list_of(kept_steps(all)));
    for (const auto& change : changes_of(all)) {
      std::string settings;
      for (const auto& setting : change.settings)
        settings += (settings.empty() ? "" : " ") + setting;
      print("changed", str("after step ", change.at_step, ": ", settings));
    }
  }
  if (const auto file = run / "supervise/status.json"; path_exists(file)) {
    const Json status = Json::parse(read_text(file, kMostStatusBytes), file.string());
    std::string hosts;
    for (const Json& host : status.at("hosts").as_array())
      hosts +=
          str(hosts.empty() ? "" : ", ", text_at(host, "host"), " (", text_at(host, "state"), ")");
    print("supervised", str(text_at(status, "phase"), ": ", hosts));
  }
  for (const auto request : control.unanswered())
    print("pending", str("request ", request));
  print("epoch", str(number));
  if (const auto starts = starts_of(read_ledger(run / "ledger.jsonl")); !starts.empty()) {
    std::string hosts;
    for (const auto& host : starts.back().hosts)
      hosts += (hosts.empty() ? "" : ", ") + host;
    print("hosts", hosts);
  }
  return 0;
}

std::int64_t step_in(const std::string& text) {
  std::int64_t step = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), step);
  if (end.ec != std::errc{} || end.ptr != text.data() + text.size() || step < 1)
    throw UsageError(str("expected a step, found ", text));
  return step;
}

// Checks the arguments. The run checks the rest.
Request request_of(const CtlVerbOptions& o) {
  Request request{.command = o.command, .is_dry_run = o.is_dry_run};
  const auto count = o.arguments.size();
  const auto expect = [&](bool is_right, const char* form) {
    if (!is_right)
      throw UsageError(str("`lockstep ctl RUN ", o.command, "`: expected the form `", form, "`"));
  };
  if (o.command == "rollback") {
    expect(count == 1, "rollback STEP [--skip FIRST..LAST]");
    request.step = step_in(o.arguments.front());
    if (!o.skip.empty()) StepRange::parse(o.skip, "--skip");
    request.skip = o.skip;
    if (!o.yes) request.is_dry_run = true;
  } else if (o.command == "release") {
    expect(count == 1, "release STEP");
    request.step = step_in(o.arguments.front());
  } else if (o.command == "drain") {
    expect(count == 1, "drain HOST");
    request.target = o.arguments.front();
  } else if (o.command == "set") {
    expect(count > 0, "set KEY=VALUE ... [--at STEP]");
    request.step = o.at.value_or(0);
    for (const auto& text : o.arguments)
      if (const auto key = parse_setting(text).key; find_option(key) == nullptr)
        throw ConfigError(str("unknown key ", key, did_you_mean_key(key)));
    request.settings = o.arguments;
  } else {
    expect(count == 0, o.command.c_str());
  }
  if (o.command != "set" && o.at) throw UsageError("--at: only `set` has it");
  if (o.command != "rollback" && !o.skip.empty())
    throw UsageError("--skip: only `rollback` has it");
  return request;
}

// A run that begins again in its process has no lock for a moment.
std::optional<std::string> trainer_after_a_while(const fs::path& run) {
  constexpr auto kTurn = std::chrono::milliseconds(500);
  for (int turn = 0; turn < 10; ++turn) {
    if (auto trainer = trainer_of(run)) return trainer;
    std::this_thread::sleep_for(kTurn);
  }
  return std::nullopt;
}

std::string nobody_trains(const fs::path& run) {
  return str("no process trains in ", run.string(),
             " now, and a later start takes no old requests; start the run with `lockstep train ",
             (run / "config.toml").string(),
             "`, or change its configuration first; `lockstep train --help` lists --from-step and "
             "--skip-steps");
}

// Whether a process takes the request: one that trains, or the leader of a supervised run.
bool has_receiver(const CtlVerbOptions& o, const ControlDirectory& control) {
  const bool is_for_leader = o.command == "drain" || o.command == "stop";
  return (is_for_leader && control.has_supervisor()) || trainer_after_a_while(o.run);
}

int wait_for_answer(const CtlVerbOptions& o, const ControlDirectory& control, std::int64_t number) {
  constexpr auto kTurn = std::chrono::milliseconds(200);
  constexpr double kBetweenLooks = 5;
  const auto begin = Clock::now();
  double told = 0;
  for (;;) {
    if (const auto answer = control.answer_of(number)) {
      const bool is_done = answer->state == RequestState::done;
      (is_done ? std::cout : std::cerr) << kRequestStates[static_cast<std::size_t>(answer->state)]
                                        << ": " << printable(answer->message) << "\n";
      return is_done ? 0 : 1;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds > o.timeout_seconds)
      throw TransientError(str("request ", number, " has no answer after ",
                               human_seconds(o.timeout_seconds), "; it stays, and `lockstep ctl ",
                               o.run.string(), " log` shows its outcome later"));
    if (seconds - told > kBetweenLooks) {
      told = seconds;
      if (!has_receiver(o, control) && !control.answer_of(number)) {
        control.withdraw(number);
        throw TransientError(str("the run ended before it answered; request ", number,
                                 " is withdrawn unless the log says that it was taken: "
                                 "`lockstep ctl ",
                                 o.run.string(), " log`"));
      }
      log_info("request ", number, " waits for the end of a step");
    }
    std::this_thread::sleep_for(kTurn);
  }
}

int run_ctl(const CtlVerbOptions& o) {
  if (!directory_exists(o.run / "checkpoints"))
    throw DataError(str(o.run.string(), ": expected the directory of a run"));
  const ControlDirectory control(o.run);
  if (o.command == "status") return print_status(o.run);
  if (o.command == "log") return print_log(control);
  std::vector<std::string> commands{"status", "log"};
  commands.insert(commands.end(), kRequestCommands.begin(), kRequestCommands.end());
  if (std::ranges::find(commands, o.command) == commands.end()) {
    const auto near = nearest(o.command, commands);
    throw UsageError(
        str("unknown command ", o.command,
            near.empty() ? "; see `lockstep ctl --help`" : str("; did you mean ", near, "?")));
  }
  const auto request = request_of(o);
  if (!has_receiver(o, control)) throw TransientError(nobody_trains(o.run));
  if (!directory_exists(control.path()))
    throw TransientError(
        str(control.path().string(), ": absent; the run takes requests after its start"));
  const auto number = control.send(request);
  if (o.no_wait) {
    std::cout << "sent request " << number << ": " << in_words(request) << "\n";
    return 0;
  }
  const int code = wait_for_answer(o, control, number);
  if (request.is_dry_run && !o.is_dry_run && code == 0) {
    std::cerr << "nothing is changed; pass --yes to go back\n";
    return 1;
  }
  return code;
}

}  // namespace

Verb ctl_verb() {
  auto o = std::make_shared<CtlVerbOptions>();
  return {
      "ctl",
      "show, pause, save, change or stop a run while it trains",
      {{"run", [o](const std::string& text) { o->run = text; }, "Run", "RUN",
        "directory of the run", kRequired},
       {"command", &o->command, "Command",
        "status|log|save|release|pause|resume|stop|rollback|set|drain",
        "status and log print the state and the requests; the other commands are sent to the run "
        "(docs/operations.md)",
        kRequired},
       {"arguments", &o->arguments, "Command", "ARGUMENT", "arguments of the command"},
       {"--at", &o->at, "Command", "STEP",
        "set: the step after which the settings change (default: the current one)",
        kRule.within(1, 1e9)},
       {"--skip", &o->skip, "Command", "FIRST..LAST",
        "rollback: skip the samples of steps FIRST to LAST"},
       {"--yes", &o->yes, "Command", "",
        "rollback: go back; without it, only print what would happen"},
       {"--dry-run", &o->is_dry_run, "Command", "", "only print what would happen"},
       {"--no-wait", &o->no_wait, "Answer", "", "do not wait for the answer"},
       {"--timeout", &o->timeout_seconds, "Answer", "SECONDS", "longest wait for the answer",
        kWithDefault.within(1)}},
      [o] { return run_ctl(*o); }};
}

}  // namespace lockstep
