#include "run_listener.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "messages.h"
#include "rank_notices.h"
#include "registered_hooks.h"
#include "spillway/preload/same_library.h"

namespace spillway::preload {
namespace {

// In the abstract name space: it is gone with the last descriptor. Size 0: nobody asks.
sockaddr_un address;
socklen_t address_size = 0;
pid_t first_process = 0;
int listener = -1;
// What standard error was: many programs close it before we have our say.
int kept_errors = -1;
struct stat kept_errors_facts;

// Out of the way of shells, which use low numbers.
constexpr int kLowestNumber = 200;

int raised(int descriptor) {
  const int high = fcntl(descriptor, F_DUPFD_CLOEXEC, kLowestNumber);
  if (high < 0) return descriptor;  // Few are allowed.
  close(descriptor);
  return high;
}

void keep_errors() {
  kept_errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kLowestNumber);
  if (kept_errors >= 0) fstat(kept_errors, &kept_errors_facts);
}

// The program may have closed our descriptor, and opened a file of its own under the number.
bool is_still_ours(int descriptor) {
  sockaddr_un name{};
  socklen_t size = sizeof name;
  return descriptor >= 0 &&
         getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
         size == address_size && memcmp(&name, &address, size) == 0;
}

bool has_kept_errors() {
  struct stat facts {};
  return kept_errors >= 0 && fstat(kept_errors, &facts) == 0 &&
         facts.st_dev == kept_errors_facts.st_dev && facts.st_ino == kept_errors_facts.st_ino;
}

void stop_listening() {
  if (is_still_ours(listener)) close(listener);
  listener = -1;
  if (has_kept_errors()) close(kept_errors);
  kept_errors = -1;
}

}  // namespace

void remember_run() {
  const char* name = spillway_run_name();
  if (name == nullptr) return;
  const size_t length = strlen(name);
  if (length >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path + 1, name, length);
  address_size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  first_process = static_cast<pid_t>(strtol(name + strlen(SPILLWAY_RUN_NAME_START), nullptr, 10));
}

void listen_for_cores() {
  if (address_size == 0 || getpid() != first_process) return;
  const int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return;
  if (bind(made, reinterpret_cast<const sockaddr*>(&address), address_size) != 0) {
    close(made);  // The same number in another space of process numbers.
    return;
  }
  listener = raised(made);
  keep_errors();
  // Who reads what the run says waits until the last descriptor is closed, so a child that goes on
  // in the background may keep none.
  pthread_atfork(nullptr, nullptr, &stop_listening);
}

void tell_of_core() {
  if (address_size == 0) return;
  if (getpid() == first_process) {
    stop_listening();
    return;
  }
  const int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (sender < 0) return;
  // Refused when the first process is gone; full when many have told already.
  const ssize_t sent = sendto(sender, "", 1, MSG_NOSIGNAL,
                              reinterpret_cast<const sockaddr*>(&address), address_size);
  (void)sent;
  close(sender);
}

RunState state_of_run() {
  if (listener < 0 || getpid() != first_process || !is_still_ours(listener))
    return RunState::kNotListening;
  char told = 0;
  const bool has_heard = recv(listener, &told, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
  return has_heard ? RunState::kUnderSpillway : RunState::kPlain;
}

void report_plain_run() {
  const RunState state = state_of_run();
  if (state == RunState::kPlain && fcntl(STDERR_FILENO, F_GETFD) < 0 && has_kept_errors())
    dup2(kept_errors, STDERR_FILENO);
  if (state == RunState::kPlain)
    warn(
        "no process of this run came under Spillway on this machine, so its budget limited nothing "
        "here: none loaded LibTorch where it could be seen (`spillway doctor -- PROGRAM` looks at "
        "a "
        "program)");
  if (state != RunState::kNotListening) stop_listening();
}

}  // namespace spillway::preload

namespace {

/// The core ends the process so itself, where nothing may be waited for.
bool is_of_core(const void* caller, const SpillwayHooks& hooks) {
  return spillway::preload::are_of_one_library(caller,
                                               reinterpret_cast<const void*>(hooks.program_leaves));
}

[[noreturn]] void end_at_once(int code, const void* caller) {
  const int saved_errno = errno;
  const SpillwayHooks* told = spillway::preload::registered_hooks();
  if (told != nullptr && told->program_leaves != nullptr && !is_of_core(caller, *told))
    told->program_leaves();
  spillway::preload::report_plain_run();
  spillway::preload::note_end(code);
  errno = saved_errno;
  while (true) syscall(SYS_exit_group, code);
}

}  // namespace

// Some shells leave without running destructors.
extern "C" {

SPILLWAY_VISIBLE void _exit(int code) { end_at_once(code, __builtin_return_address(0)); }

SPILLWAY_VISIBLE void _Exit(int code) noexcept { end_at_once(code, __builtin_return_address(0)); }

}  // extern "C"
