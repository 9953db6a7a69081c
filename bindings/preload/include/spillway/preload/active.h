#pragma once

/* How the command tells the libraries in a program that it started it. */

#include <stdlib.h>
#include <string.h>

#define SPILLWAY_ACTIVE_VARIABLE "SPILLWAY_ACTIVE"
#define SPILLWAY_ACTIVE_VALUE "1"

/** Whether `spillway run` started this program. */
static inline int spillway_is_active(void) {
  const char* value = getenv(SPILLWAY_ACTIVE_VARIABLE);
  return value != NULL && strcmp(value, SPILLWAY_ACTIVE_VALUE) == 0;
}
