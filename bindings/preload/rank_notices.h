#pragma once

#include <errno.h>
#include <sys/types.h>

namespace spillway::preload {

// What a rank of which the user sees nothing tells all the same. Once for each process; any thread.
// A trainer that is linked with the core, without the preload library, is no such rank.

/// On such a rank says that the standard input which the program reads is empty.
void tell_of_input();

/// On such a rank names a shared file that is read, although it was changed after the rank began.
void tell_of_change(const char* name);

/// On such a rank names a large shared file that it is about to copy, since the program changes it.
void tell_of_copy(const char* name, off_t size);

/// Names a program that such a rank starts and that does not go by its files. Once for the rank,
/// also where its children start the program, and safe in a child of vfork.
void tell_of_unreachable(const char* program, const char* reason);

/// On such a rank names the folder of its files where no space is left in it.
void tell_of_full_disk();

/// In the first process of such a rank leaves a mark in the folder of its files if the process ends
/// with an error of its own, so that what it said last comes out.
void note_end(int exit_code);

/// To be called before a descriptor is read.
inline void note_input(int file) {
  if (file == 0) tell_of_input();
}

/// To be called for an error of a call on files.
inline void note_error(int error) {
  if (error == ENOSPC || error == EDQUOT) tell_of_full_disk();
}

/// Passes the result of a call on that says by a negative one that errno tells.
template <class Result>
Result noted(Result result) {
  if (result < 0) note_error(errno);
  return result;
}

}  // namespace spillway::preload
