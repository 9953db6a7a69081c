// The begin of a program is told when its libraries are there: a core that it is linked with starts
// while they are loaded, when MPI must not. Its end is told before they end: what they have made
// for themselves, as oneDNN's engines, is destroyed by functions at exit, of which those registered
// last come first.

#include <stdlib.h>

#include "next_function.h"
#include "registered_hooks.h"

namespace spillway::preload {
namespace {

using Main = int (*)(int, char**, char**);
using StartMain = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);

Main main_of_program = nullptr;
StartMain known_start = nullptr;
decltype(&::exit) known_exit;

void tell_of_end(int code) {
  const SpillwayHooks* told = registered_hooks();
  if (told != nullptr && told->program_ends != nullptr) told->program_ends(code);
}

int run_main(int count, char** words, char** environment) {
  const SpillwayHooks* told = registered_hooks();
  if (told != nullptr && told->program_begins != nullptr) told->program_begins();
  const int code = main_of_program(count, words, environment);
  tell_of_end(code);
  return code;
}

}  // namespace
}  // namespace spillway::preload

extern "C" {

SPILLWAY_VISIBLE int __libc_start_main(spillway::preload::Main main, int count, char** words,
                                       void (*begin)(), void (*end)(), void (*end_of_loader)(),
                                       void* stack) {
  using namespace spillway::preload;
  main_of_program = main;
  const auto start = next_function(known_start, "__libc_start_main");
  return start(&run_main, count, words, begin, end, end_of_loader, stack);
}

SPILLWAY_VISIBLE void exit(int code) noexcept {
  spillway::preload::tell_of_end(code);
  spillway::preload::next_function(spillway::preload::known_exit, "exit")(code);
  abort();  // Unreached.
}
}
