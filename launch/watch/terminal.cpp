#include "launch/watch/terminal.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <poll.h>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/error.h"

namespace lockstep {
namespace {

// Alternate screen, no cursor, no line wrapping; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";

// Returns false if the terminal is gone.
bool write_all(std::string_view text) {
  while (!text.empty()) {
    const auto written = write(STDOUT_FILENO, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
      poll(&out, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool Terminal::is_there() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && term != nullptr && *term != '\0' &&
         std::string_view(term) != "dumb";
}

Terminal::Terminal() : has_keys_(isatty(STDIN_FILENO) == 1) {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP})
    sigaddset(&taken, signal);
  pthread_sigmask(SIG_BLOCK, &taken, &signals_before_);
  signals_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  LOCKSTEP_CHECK(signals_ >= 0, "signalfd failed");
  enter();
}

Terminal::~Terminal() {
  leave();
  close(signals_);
  pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
}

void Terminal::enter() {
  if (has_keys_ && tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 0;
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
  }
  is_gone_ = !write_all(kEnter);
}

void Terminal::leave() {
  write_all(kLeave);
  if (has_keys_) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

Terminal::Size Terminal::size() {
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0)
    return {};
  return {.columns = window.ws_col, .rows = window.ws_row};
}

// Erases a row before its text is written: after a full row the cursor stays on the last character.
void Terminal::show(const std::vector<std::string>& lines, int rows) {
  std::string frame = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i)
    frame += str(i == 0 ? "" : "\r\n", "\x1b[K", lines[i], "\x1b[0m");
  if (std::ssize(lines) < rows) frame += "\r\n\x1b[J";
  is_gone_ = !write_all(frame);
}

std::optional<int> Terminal::take_signal() {
  signalfd_siginfo signal{};
  std::optional<int> end;
  while (read(signals_, &signal, sizeof signal) == sizeof signal) {
    if (signal.ssi_signo == SIGTSTP) {  // Ctrl-Z: stops until the shell continues it
      leave();
      raise(SIGSTOP);
      enter();
    } else if (signal.ssi_signo != SIGWINCH && !end) {
      end = 128 + static_cast<int>(signal.ssi_signo);
    }
  }
  return end;
}

std::optional<int> Terminal::wait(double seconds) {
  if (is_gone_) return 128 + SIGHUP;
  std::array<pollfd, 2> events{pollfd{.fd = signals_, .events = POLLIN, .revents = 0},
                               pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}};
  const auto milliseconds = static_cast<int>(1000 * seconds);
  if (poll(events.data(), has_keys_ ? 2 : 1, milliseconds) <= 0) return std::nullopt;
  if (events[0].revents != 0) return take_signal();
  char key = 0;
  const auto got = read(STDIN_FILENO, &key, 1);
  if (got == 0 || (got < 0 && errno == EIO)) return 128 + SIGHUP;  // the terminal is gone
  return got == 1 && (key == 'q' || key == 'Q') ? std::optional(0) : std::nullopt;
}

}  // namespace lockstep
