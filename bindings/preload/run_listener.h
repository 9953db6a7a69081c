#pragma once

#include "spillway/preload/active.h"

namespace spillway::preload {

// A run with a budget that was asked for must not end as if it had been kept where nothing of it
// came under Spillway. The process that the command became listens, at a socket whose name all
// processes of the run know; each that gets a core tells it. There is no other process, no
// descriptor that a program inherits, and no file.

/// Keeps the name of the run, before the program can clear its environment. Once, before main.
void remember_run();

/// Begins to listen, where this process is the first one of a run and has no core.
void listen_for_cores();

/// Tells the first process of the run that this one is under Spillway.
void tell_of_core();

/// What this process knows of its run.
enum class RunState {
  kNotListening,  ///< It is not the first one, or nobody asks.
  kPlain,         ///< It has heard of no core.
  kUnderSpillway,
};
RunState state_of_run();

/// Called when this process ends: says so where it listens and has heard of no core. Says it once.
void report_plain_run();

}  // namespace spillway::preload
