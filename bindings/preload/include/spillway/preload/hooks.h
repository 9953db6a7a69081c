#pragma once

/* The border between the preload library and the core, in plain C: the two share no C++ runtime. */

#include <stddef.h>
#include <sys/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_HOOKS_VERSION 4

/** What the core wants to be told. Members may be null. The structure is copied. */
struct SpillwayHooks {
  unsigned version; /**< SPILLWAY_HOOKS_VERSION of the caller. */

  /** Runs on every thread that is made after the registration, before the thread's own function. */
  void (*thread_started)(void);

  /**
   * Bytes from `memory` on, at most `size`, that lie in one tensor; 0: in none. Any thread, no
   * lock.
   */
  size_t (*tensor_bytes)(const void* memory, size_t size);
  size_t bytes_at_once;     /**< Of tensors that one system call should use at most. */
  int kernel_serves_faults; /**< Not 0: only direct I/O needs help, which faults on nothing. */

  /**
   * Brings bytes of a tensor in and holds them until `release_memory`; `is_filled`: they will be
   * written. Null where that cannot be; they still come in when they are touched. `is_direct`: a
   * device uses them, so that they may not leave even when operators find no room.
   */
  void* (*hold_memory)(const void* memory, size_t size, int is_filled, int is_direct);
  void (*release_memory)(void* token);

  /**
   * As prlimit of this process: a limit that the program sets bounds what it takes itself, and what
   * is reserved for tensors is added to it.
   */
  int (*change_limit)(int resource, const struct rlimit* wanted, struct rlimit* told);
  /** Before exec: the limits as the program has set them; `is_over`: it has failed. */
  void (*hand_on_limits)(int is_over);
  void (*thread_refused)(void); /**< The program could not start a thread. Called there and then. */
  int (*lock_all_memory)(int flags); /**< As mlockall, without what is reserved for tensors. */
};

/**
 * Called by the core while it is being loaded. Returns 0, or -1 when the versions differ. Look it
 * up with dlsym(RTLD_DEFAULT, "spillway_preload_register"): it is absent when the core was linked
 * in.
 */
int spillway_preload_register(const struct SpillwayHooks* hooks);

typedef int (*SpillwayPreloadRegister)(const struct SpillwayHooks*);

#ifdef __cplusplus
}
#endif
