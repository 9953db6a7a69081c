/* The NCCL that it is linked with, which says that it is another release and counts how often it
   divides a communicator. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

int spillway_splits = 0;

int ncclGetVersion(int* version) {
  *version = SPILLWAY_NCCL_VERSION;
  return 0;
}

int ncclCommSplit(void* comm, int color, int key, void** part, void* how) {
  typedef int (*Split)(void*, int, int, void**, void*);
  const Split split = (Split)dlsym(RTLD_NEXT, "ncclCommSplit");
  if (split == NULL) abort();
  __atomic_add_fetch(&spillway_splits, 1, __ATOMIC_RELAXED);
  return split(comm, color, key, part, how);
}
