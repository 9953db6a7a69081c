#pragma once

/* The border between the preload library and the core, in plain C: the two share no C++ runtime. */

#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_HOOKS_VERSION 15

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
  /** LibTorch's Python module has all its classes. On the thread that imports it, once. */
  void (*python_begins)(void);
  /** Before the program's main, where the core was there by then; as SPILLWAY_CORE_IS_LOADED. */
  void (*program_begins)(void);
  /** The program's main returns this, or it calls exit: before anything of it is destroyed. */
  void (*program_ends)(int code);
  /** It calls _exit, behind which nothing of it runs. Any thread; children of vfork, too. */
  void (*program_leaves)(void);

  /*
   * Null unless the program is split over ranks: its tensors' bytes may then be absent from this
   * process. Any thread, inside of operators too. C++ exceptions pass through to the program.
   */

  /** A signal has come for which the program has a handler. Not 0: the core raises it later, when
   * the handler is to run. In a signal handler. */
  int (*hold_signal)(int signal);
  /** Before the program gets a pointer to the bytes of `tensor` (at::TensorBase). `writes`: 1
   * where it may change them; -1 where it reads them at once and keeps no pointer. Not null either
   * where it has LibTorch's CUDA part. */
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
  /**
   * How many of `size` bytes, counted from their end, are zeroes that stand for bytes which the
   * first rank alone writes: a file may have a hole in their place. Any thread, no lock.
   */
  size_t (*absent_bytes)(const void* memory, size_t size);
  /**
   * Reads a record of an archive in place of LibTorch's `function`, PyTorchStreamReader::getRecord,
   * into its `result`, which is not made yet; `allocator`: its std::optional<c10::Allocator*>.
   */
  void (*read_record)(void (*function)(void), void* result, void* reader, const void* name,
                      const void* allocator);
  /**
   * Before a read of `size` bytes at `from` of a file, or where the descriptor is (-1), which moves
   * then. Not 0: all of it is there, and nothing is left to do.
   */
  int (*read_part)(int file, void* memory, size_t size, off_t from);
  /** Whether bytes of that file are, or were, to be read later: it must not be emptied in place. */
  int (*keeps_file)(dev_t device, ino_t inode);
  /** Before a flag of LibTorch is set that holds for the whole process, as the default type. */
  void (*before_flag)(void);
  /** `tensor` (c10::TensorImpl) has come to require a gradient, by no operator. */
  void (*leaf_made)(void* tensor);
  /** A module of LibTorch's C++ interface has registered `parameter` (at::Tensor). */
  void (*parameter_registered)(const void* parameter);
  /**
   * Not 0: nodes of autograd that this thread makes now get the numbers of a thread of their own,
   * as on the one that LibTorch has for backward on a GPU.
   */
  int (*numbers_apart)(void);
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
