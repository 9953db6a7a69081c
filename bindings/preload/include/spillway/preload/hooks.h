#pragma once

/* The border between the preload library and the core, in plain C: the two share no C++ runtime. */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_HOOKS_VERSION 3

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
