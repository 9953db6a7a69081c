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
int exit_is_told = 0;
int change_is_told = 0;

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

__attribute__((constructor)) void watch_end() {
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

void tell_of_exit(int exit_code) {
  note_end(exit_code);
  if (exit_code != 0 && has_private_files() && is_first_process() && is_first(exit_is_told))
    warn("the program ends with exit code %d", exit_code);
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
