#include "watched_program.h"

#include <glob.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "exit_codes.h"
#include "spillway/base/default_signal.h"
#include "spillway/base/error.h"

namespace spillway::cli {
namespace {

constexpr std::array kHandedOn{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// Signals wait in this process until it asks for them; the child gets what was there before.
class WaitingSignals {
 public:
  WaitingSignals() {
    ::sigemptyset(&waited_);
    ::sigaddset(&waited_, SIGCHLD);
    for (const int each : kHandedOn) ::sigaddset(&waited_, each);
    // A parent that ignores the end of its children never learns of it.
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &plain, &child_before_);
    ::sigprocmask(SIG_BLOCK, &waited_, &before_);
  }

  void restore() const {
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  /// The next one to hand on; nothing for the end of a child.
  std::optional<int> next() const {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&waited_, &info);
    // What the kernel sends (Ctrl-C) goes to the whole group, so the child has it already.
    if (signal <= 0 || signal == SIGCHLD || info.si_code > 0) return std::nullopt;
    return signal;
  }

 private:
  sigset_t waited_{};
  sigset_t before_{};
  struct sigaction child_before_ {};
};

[[noreturn]] void die_by(int signal) {
  const rlimit no_core{0, 0};  // The child has left one, if any.
  ::setrlimit(RLIMIT_CORE, &no_core);
  raise_default(signal);
  ::_exit(kSignalBase + signal);
}

int status_of(pid_t child, const WaitingSignals& signals) {
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR)
      throw IoError("cannot wait for the program: {}", std::strerror(errno));
    if (const auto signal = signals.next()) ::kill(child, *signal);
  }
}

}  // namespace

int run_watched(const std::function<int()>& become,
                const std::function<int(long child, int code)>& ended) {
  std::fflush(nullptr);
  const WaitingSignals signals;
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0)
    throw IoError("cannot start a process: {} (ulimit -u and the control group limit them)",
                  std::strerror(errno));
  if (child == 0) {
    // Nobody would wait for it any more.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(kWrongUsage);
    signals.restore();
    ::_exit(become());
  }
  const int status = status_of(child, signals);
  const bool is_killed = WIFSIGNALED(status);
  const int code = is_killed ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
  const int exit_code = ended(child, code);
  if (is_killed) die_by(WTERMSIG(status));
  return exit_code;
}

std::vector<std::string> written_states(const std::string& pattern) {
  std::string wanted;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'p' || next == 'r')
      wanted += "[0-9]*";
    else if (next == 'd')
      wanted += "c[pu]*";
    else if (next == '%')
      wanted += '%';
    else
      (wanted += std::strchr("*?[\\", pattern[i]) != nullptr ? "\\" : "") += pattern[i];
    if (next == 'p' || next == 'r' || next == 'd' || next == '%') ++i;
  }
  std::vector<std::string> states;
  glob_t found{};
  if (::glob(wanted.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      struct stat facts {};
      if (::stat(found.gl_pathv[i], &facts) != 0) continue;
      states.push_back(message("{} {} {}.{}", found.gl_pathv[i], facts.st_ino, facts.st_mtim.tv_sec,
                               facts.st_mtim.tv_nsec));
    }
  }
  ::globfree(&found);
  return states;
}

}  // namespace spillway::cli
