#pragma once

/* How the command tells the libraries in a program that it started it. */

#include <stdlib.h>
#include <string.h>

#define SPILLWAY_ACTIVE_VARIABLE "SPILLWAY_ACTIVE"
/* Where somebody wants to know whether the run came under Spillway, the run's name follows the
   value, with a colon between them: "1:spillway-run-4711-1f0a". */
#define SPILLWAY_ACTIVE_VALUE "1"
#define SPILLWAY_RUN_NAME_START "spillway-run-"
/* The folder of a rank whose files are its own, see private_files.h. */
#define SPILLWAY_PRIVATE_FILES_VARIABLE "SPILLWAY_PRIVATE_FILES"
/* The process that is a rank of a split program, in it and in what it starts: MPI knows one process
   of each rank. */
#define SPILLWAY_JOINED_VARIABLE "SPILLWAY_JOINED"
/* Before the names of a launcher's variables that the program does not see: kHiddenLauncher of
   src/base, for what links nothing. */
#define SPILLWAY_HIDDEN_LAUNCHER "SPILLWAY_LAUNCHER_"

/** Whether `spillway run` started this program. */
static inline int spillway_is_active(void) {
  const char* value = getenv(SPILLWAY_ACTIVE_VARIABLE);
  return value != NULL && value[0] == SPILLWAY_ACTIVE_VALUE[0] &&
         (value[1] == '\0' || value[1] == ':');
}

/** The name of the run that this program belongs to, or null where nobody asks. */
static inline const char* spillway_run_name(void) {
  static const char start[] = SPILLWAY_ACTIVE_VALUE ":" SPILLWAY_RUN_NAME_START;
  const char* value = getenv(SPILLWAY_ACTIVE_VARIABLE);
  if (value == NULL || strncmp(value, start, sizeof start - 1) != 0) return NULL;
  return strchr(value, ':') + 1;
}
