#include "rank_notices.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/sysmacros.h>

#include "messages.h"
#include "next_function.h"
#include "private_folder.h"
#include "raw_files.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

decltype(&::abort) known_abort;
int input_is_told = 0;
int full_disk_is_told = 0;
int change_is_told = 0;
pid_t process = 0;

bool is_first(int& told) {
  return __atomic_load_n(&told, __ATOMIC_RELAXED) == 0 &&
         __atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) == 0;
}

/// As `spillway run` leaves it; a program may have put something else there.
bool is_null_device(int file) {
  struct stat facts {};
  return raw::call(SYS_fstat, file, &facts) == 0 && S_ISCHR(facts.st_mode) &&
         facts.st_rdev == makedev(1, 3);
}

/// The number at the end of the folder's name, before six letters.
bool is_first_process() {
  const char* number = strrchr(private_root(), '/');
  while (number != nullptr && *number != '\0' && (*number < '0' || *number > '9')) ++number;
  return number != nullptr && strtol(number, nullptr, 10) == getpid();
}

void abort_for_real() { next_function(known_abort, "abort")(); }

void end_with(int exit_code, void* /*nothing*/) { note_end(exit_code); }

/// That of the process. A child that is about to become a program may have that one's already,
/// which the rank reads or throws away. Standard error of a rank is a pipe.
int error_output_before_start() {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", process, STDERR_FILENO);
  struct stat facts {};
  if (getpid() == process || stat(path, &facts) != 0 || !S_ISFIFO(facts.st_mode))
    return STDERR_FILENO;
  const int output = raw::open_file(path, O_WRONLY);
  return output < 0 ? STDERR_FILENO : output;
}

__attribute__((constructor)) void watch_end() {
  process = getpid();
  if (has_private_files()) on_exit(&end_with, nullptr);
}

}  // namespace

void note_end(int exit_code) {
  if (exit_code == 0 || !has_private_files() || !is_first_process()) return;
  char mark[PATH_MAX];
  snprintf(mark, sizeof mark, "%s/failed", private_root());
  const int file = raw::open_file(mark, O_WRONLY | O_CREAT, S_IRUSR | S_IWUSR);
  if (file >= 0) raw::close_file(file);
}

void tell_of_input() {
  if (!has_private_files()) return;
  const int before = errno;
  if (is_null_device(0) && is_first(input_is_told))
    warn("the program reads standard input, which only the first rank has: on this rank it is "
         "empty");
  errno = before;
}

void tell_of_change(const char* name) {
  const int before = errno;
  if (is_first(change_is_told))
    warn("%s is read, which was changed after this run began: ranks may read different bytes of it "
         "(change it before the run; or let the program write a new file and rename it)",
         name);
  errno = before;
}

void tell_of_copy(const char* name, off_t size) {
  constexpr off_t kMany = off_t{256} << 20;
  if (size <= kMany) return;
  const int before = errno;
  warn("%s is to be changed, so this rank copies its %.1f GiB to %s, where only it sees them (let "
       "the program open it to read only, where it changes nothing)",
       name, static_cast<double>(size) / (1 << 30), private_root());
  errno = before;
}

void tell_of_unreachable(const char* program, const char* reason) {
  const int before = errno;
  // Who starts it may be a child of the rank, or the memory of its parent.
  struct stat facts {};
  char mark[PATH_MAX];
  int file = -1;
  if (raw::call(SYS_newfstatat, AT_FDCWD, program, &facts, 0) == 0) {
    snprintf(mark, sizeof mark, "%s/told-%lx-%lx", private_root(), facts.st_dev, facts.st_ino);
    file = raw::open_file(mark, O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  }
  if (file >= 0) {
    raw::close_file(file);
    const int output = error_output_before_start();
    warn_at(
        output,
        "%s is started by this rank, and what it writes is not the rank's own but the user's: %s "
        "(start it where \"SPILLWAY_PRIVATE_FILES\" not in os.environ, which is the first rank)",
        program, reason);
    if (output != STDERR_FILENO) raw::close_file(output);
  }
  errno = before;
}

void tell_of_full_disk() {
  if (!has_private_files()) return;
  const int before = errno;
  if (is_private_disk_full() && is_first(full_disk_is_told))
    warn("No space left in %s, where the files of this rank are, which only it sees (name another "
         "place with TMPDIR, or save less)",
         private_root());
  errno = before;
}

}  // namespace spillway::preload

extern "C" {

[[noreturn]] SPILLWAY_VISIBLE void abort() noexcept {
  spillway::preload::note_end(SIGABRT);
  while (true) spillway::preload::abort_for_real();
}

}  // extern "C"
