#include "support/failing_calls.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <exception>

namespace spillway::swap {
namespace {

ChildOutcome carry_out(const std::vector<FailingCall>& calls, const std::function<bool()>& body) {
  if (!fail_calls_from_now_on(calls)) return ChildOutcome::kCannotFilter;
  try {
    return body() ? ChildOutcome::kTrue : ChildOutcome::kFalse;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return ChildOutcome::kFalse;
  }
}

}  // namespace

bool fail_calls_from_now_on(const std::vector<FailingCall>& calls) {
  std::vector<sock_filter> program;
  for (const FailingCall& call : calls) {
    const auto number = static_cast<std::uint32_t>(call.number);
    const bool has_condition = call.argument >= 0;
    const std::uint8_t skipped = has_condition ? 4 : 1;
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, skipped));
    if (has_condition) {
      const auto place =
          static_cast<std::uint32_t>(offsetof(seccomp_data, args) +
                                     sizeof(std::uint64_t) * static_cast<unsigned>(call.argument));
      program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place));
      program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, call.bits));
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.bits, 0, 1));
    }
    const auto answer = SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(call.error);
    program.push_back(BPF_STMT(BPF_RET | BPF_K, answer));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

ChildOutcome run_with_failing_calls(const std::vector<FailingCall>& calls,
                                    const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(static_cast<int>(carry_out(calls, body)));
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
      WEXITSTATUS(status) > static_cast<int>(ChildOutcome::kCannotFilter))
    return ChildOutcome::kCrashed;
  return static_cast<ChildOutcome>(WEXITSTATUS(status));
}

}  // namespace spillway::swap
