#pragma once

/* The border between the preload library and the core, in plain C: the two share no C++ runtime. */

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_HOOKS_VERSION 1

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
