#pragma once

namespace spillway::emulated {

/// How operators are emulated. Read from the environment once; an unknown value ends the process.
struct Settings {
  bool asynchronous = true;   ///< EMU_OPS=async (the default) or sync.
  bool draws_as_cpu = false;  ///< EMU_RNG=cuda (the default) or cpu.
};

/// Any thread.
const Settings& settings();

}  // namespace spillway::emulated
