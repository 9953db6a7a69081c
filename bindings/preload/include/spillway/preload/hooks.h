#pragma once

/* The border between the preload library and the core, in plain C: the two share no C++ runtime. */

#include <stddef.h>
#include <sys/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_HOOKS_VERSION 8

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
  /** Before the program's main, where the core was there by then; as SPILLWAY_CORE_IS_LOADED. */
  void (*program_begins)(void);
  /** The program's main has returned, or it calls exit: before anything of it is destroyed. */
  void (*program_ends)(void);

  /*
   * Null unless the program is split over ranks: its tensors' bytes may then be absent from this
   * process. Any thread, inside of operators too. C++ exceptions pass through to the program.
   */

  /** Before the program gets a pointer to the bytes of `tensor` (at::TensorBase). `writes`: 1
   * where it may change them; -1 where it reads them at once and keeps no pointer. */
  void (*before_pointer)(const void* tensor, int writes);
  /**
   * `tensor` (at::Tensor) goes into an archive, with its whole storage. Returns the tensor to write
   * in its place, with a storage of the same size; it lives until the next call on this thread.
   */
  const void* (*archived_tensor)(const void* tensor);
  /**
   * The same for `size` bytes, in a tensor or not. Returns where to read them; they stay there
   * until the next call on this thread.
   */
  const void* (*archived_bytes)(const void* memory, size_t size);
  /** A record of an archive has been read: `record` is its std::tuple<c10::DataPtr, size_t>. */
  void (*record_read)(const void* record);
  /** `tensor` (c10::TensorImpl) has come to require a gradient, by no operator. */
  void (*leaf_made)(void* tensor);
  /** A module of LibTorch's C++ interface has registered `parameter` (at::Tensor). */
  void (*parameter_registered)(const void* parameter);
};

/**
 * Called by the core while it is being loaded. Returns 0, or -1 when the versions differ. Look it
 * up with dlsym(RTLD_DEFAULT, "spillway_preload_register"): it is absent when the core was linked
 * in.
 */
int spillway_preload_register(const struct SpillwayHooks* hooks);

typedef int (*SpillwayPreloadRegister)(const struct SpillwayHooks*);

/** void(void) of the core: no library is being loaded any more. Once; further calls do nothing. */
#define SPILLWAY_CORE_IS_LOADED "spillway_core_is_loaded"
/**
 * Of the core, for whoever has opened it: what has to wait until the loader of libraries is free.
 * Ends the process where that fails.
 */
void spillway_core_is_loaded(void);

#ifdef __cplusplus
}
#endif
