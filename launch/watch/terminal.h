// Terminal shows an alternate screen on the terminal of standard output. Its destructor restores
// the terminal, also after Ctrl-C or an error. wait() reports signals; there are no handlers.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <termios.h>
#include <vector>

namespace lockstep {

class Terminal {
 public:
  // True if standard output is a terminal that can move its cursor.
  static bool is_there();

  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    int columns = 80, rows = 24;
  };
  static Size size();

  // Replaces the screen by these lines, at most `rows`.
  void show(const std::vector<std::string>& lines, int rows);

  // Waits, but returns early if the size changes, or with an exit code to end the program: 0 for
  // the key q, 128 + n for signal n.
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
