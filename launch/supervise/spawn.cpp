#include "launch/supervise/spawn.h"

#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <string_view>
#include <unistd.h>

#include "core/error.h"

namespace lockstep {
namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts)
    all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

struct Spawn {
  Spawn() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;
  ~Spawn() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_t files{};
  posix_spawnattr_t attributes{};
};

}  // namespace

pid_t spawn(const std::vector<std::string>& words, const SpawnOptions& options) {
  auto arguments = words, variables = options.variables;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (const std::string_view text(*entry); !text.starts_with("LOCKSTEP_SECRET="))
      variables.emplace_back(text);
  Spawn spawn;
  if (options.input >= 0)
    posix_spawn_file_actions_adddup2(&spawn.files, options.input, STDIN_FILENO);
  else
    posix_spawn_file_actions_addopen(&spawn.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (options.hides_errors)
    posix_spawn_file_actions_addopen(&spawn.files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  if (options.passed.first >= 0)
    posix_spawn_file_actions_adddup2(&spawn.files, options.passed.first, options.passed.second);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (const int one : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGPIPE})
    sigaddset(&defaults, one);
  posix_spawnattr_setsigmask(&spawn.attributes, &none);
  posix_spawnattr_setsigdefault(&spawn.attributes, &defaults);
  posix_spawnattr_setpgroup(&spawn.attributes, 0);
  const int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP;
  posix_spawnattr_setflags(&spawn.attributes, static_cast<short>(flags));
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, arguments.front().c_str(), &spawn.files, &spawn.attributes,
                                 pointers(arguments).data(), pointers(variables).data());
  if (error != 0) throw TransientError(str("cannot start ", words.front(), ": ", reason(error)));
  return pid;
}

}  // namespace lockstep
