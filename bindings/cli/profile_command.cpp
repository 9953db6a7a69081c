#include "profile_command.h"

#include <glob.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>

#include "exit_codes.h"
#include "spillway/base/default_signal.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

/// An exit code above it is the number of a signal, as in shells.
constexpr int kSignalBase = 128;

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

/// Runs `become` (an exec that returns an exit code where it fails) in a child, hands signals on
/// to it that were sent to this process alone, and waits. Returns the child's exit code; `ended` is
/// asked for it first, with the child's id. Dies by the signal that ended the child.
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

/// Files that `pattern` may name (%p, %r and %d are any, see `expand_stats_path`), each with
/// what changes when it is written: a file that appears or changes is not in an earlier list.
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

/// A person who waited for a profile, and a script, must learn that there is none.
int watch_for_profile(const ProgramStart& start) {
  const std::vector<std::string> before = written_states(start.profile_out);
  return run_watched(start.become, [&](long child, int code) {
    for (const std::string& state : written_states(start.profile_out))
      if (std::find(before.begin(), before.end(), state) == before.end()) return code;
    const std::string path = runtime::expand_stats_path(start.profile_out, child, "0");
    if (code > kSignalBase)
      log_error(
          "no profile in {}: {} was ended by signal {} ({}) before it had written one (let it "
          "train longer, or name fewer --steps)",
          path, start.path, code - kSignalBase, ::strsignal(code - kSignalBase));
    else if (start.is_linked_with_torch)
      log_error("no profile in {}: {} wrote none (see the errors above; without any, it was ended "
                "by _exit or exec)",
                path, start.path);
    else
      log_error("no profile in {}: {} is not linked with LibTorch, and nothing that it loaded or "
                "started wrote one (see the errors above; without any, name the trainer itself)",
                path, start.path);
    return code == kDone ? kNoProfile : code;
  });
}

}  // namespace

bool imports_trace(const Words& words) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  return std::any_of(words.begin(), dashes, [](const std::string& word) {
    return word == "--import" || word.starts_with("--import=");
  });
}

RunArguments split_profile_arguments(const Words& words) {
  return split_run_arguments(words, {{"--out", "FILE"},
                                     {"--steps", "COUNT"},
                                     {"--kind", "COUNT"},
                                     {"--tensor-parallel", "COUNT"},
                                     {"--micro-batches", "COUNT"}});
}

int record_profile(runtime::NamedTexts given, const ProfileOptions& options, const Words& program) {
  if (options.out.empty())
    throw ConfigError("where to write the profile is missing (spillway profile --out "
                      "step.profile.json -- program arguments...)");
  if (program.empty())
    throw ConfigError("no program to profile (spillway profile --out {} -- program arguments...)",
                      shell_word(options.out));
  given.emplace_back("profile-out", options.out);
  if (options.steps) given.emplace_back("profile-steps", std::to_string(*options.steps));
  if (options.kind) given.emplace_back("profile-kind", std::to_string(*options.kind));
  return run_program(given, program, &watch_for_profile);
}

}  // namespace spillway::cli
