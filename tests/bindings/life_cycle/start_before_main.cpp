// Spillway linked in: what the variables say, before the trainer's `main`.
#include <spillway/spillway.h>

namespace {

[[maybe_unused]] const bool is_started = [] {
  spillway::start();
  return true;
}();

}  // namespace
