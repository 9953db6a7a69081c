#pragma once

#include <alloca.h>
#include <stddef.h>

namespace spillway::preload {

// A launcher that clears the environment (`env -i`, a list of its own for exec) would start the
// trainer without Spillway. What the run has set is kept when a process starts, and given to the
// programs that it starts where nothing of it is left. Who takes LD_PRELOAD alone out means it. And
// what a rank of a split program starts is told so, whatever copy of the environment it gets.

/// Keeps what there is, under `spillway run`. Once, before main.
void keep_environment();

/// Gives nothing to other programs from now on.
void forget_environment();

/// What `mend_environment` needs.
struct EnvironmentRoom {
  size_t entries = 0;  ///< Of the list, its end included; 0: the environment stays as it is.
  size_t preload = 0;  ///< Characters of its LD_PRELOAD.
};

/// `takes_name`: programs that follow need not listen for cores any more.
EnvironmentRoom room_to_mend(char* const* given, bool takes_name);

/// Fills a list with what is given, and with what it lacks. Allocates nothing.
void mend_environment(char* const* given, bool takes_name, char** list, char* preload);

/// Calls `start` with the environment that a program is to get. Safe in a child of vfork.
template <class Start>
auto with_mended(char* const* given, bool takes_name, const Start& start) {
  const EnvironmentRoom room = room_to_mend(given, takes_name);
  if (room.entries == 0) return start(given);
  auto** const list = static_cast<char**>(alloca(room.entries * sizeof(char*)));
  auto* const preload = static_cast<char*>(alloca(room.preload + 1));
  mend_environment(given, takes_name, list, preload);
  return start(list);
}

}  // namespace spillway::preload
