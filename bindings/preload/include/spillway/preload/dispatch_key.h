#pragma once

/* What the command asks a core library about the LibTorch beside it, in plain C. */

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_TRY_DISPATCH_KEY "spillway_try_dispatch_key"

/**
 * Takes the dispatch key that a run with `--dispatch-key requested` would take, runs an operator
 * through it, and writes its name to `text`. Returns 0, or 1 with the reason in `text`. Once per
 * process, which is good for nothing else afterwards.
 */
int spillway_try_dispatch_key(const char* requested, char* text, size_t size);

typedef int (*SpillwayTryDispatchKey)(const char* requested, char* text, size_t size);

#ifdef __cplusplus
}
#endif
