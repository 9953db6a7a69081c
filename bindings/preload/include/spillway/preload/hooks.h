#pragma once

/* The border between the preload library and the core, in plain C: the two share no C++ runtime. */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_HOOKS_VERSION 2

/** What the core wants to be told. Members may be null. The structure is copied. */
struct SpillwayHooks {
  unsigned version; /**< SPILLWAY_HOOKS_VERSION of the caller. */

  /** Runs on every thread that is made after the registration, before the thread's own function. */
  void (*thread_started)(void);

  /**
   * Runs when an engine stub is installed (Python does so at import, or the core itself), on that
   * thread, before LibTorch sees it; LibTorch receives the stub that is returned. A stub is a
   * function without arguments that returns torch::autograd::Engine&.
   */
  void* (*engine_stub_given)(void* stub);

  /**
   * Runs before a system call on memory of the program, on its thread: brings tensor memory in and
   * holds it until `release_memory`. `is_filled`: the call writes to it. Returns how many of the
   * `size` bytes the call may use, at least one of them. `token` becomes what `release_memory`
   * wants, or null where nothing is held. Null where the kernel serves such calls itself.
   */
  size_t (*hold_memory)(const void* memory, size_t size, int is_filled, void** token);
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
