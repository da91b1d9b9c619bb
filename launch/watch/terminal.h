// Terminal: a screen of its own on the terminal that standard output is, until it is destroyed:
// then all is as it was, also behind Ctrl-C or an error. Signals come through wait(), not handlers.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <termios.h>
#include <vector>

namespace lockstep {

class Terminal {
 public:
  // Whether standard output is a terminal that can move its cursor.
  static bool is_there();

  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    int columns = 80, rows = 24;
  };
  static Size size();

  // Lines from the top, at most `rows`, in place of what was there.
  void show(const std::vector<std::string>& lines, int rows);

  // Returns after as long, or earlier where the size changed or somebody asked to end: then the
  // exit code, 0 for the key q, 128 + n for signal n.
  std::optional<int> wait(double seconds);

 private:
  void enter();
  void leave();
  std::optional<int> take_signal();

  bool has_keys_ = false;  // standard input is the terminal
  bool is_gone_ = false;
  termios before_{};
  sigset_t signals_before_{};
  int signals_ = -1;  // signalfd
};

}  // namespace lockstep
