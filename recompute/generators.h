#pragma once

#include <ATen/core/Generator.h>

namespace spillway::recompute {

/// Whether a generator's state can be put back: it is LibTorch's own for the CPU.
bool can_restore(const at::Generator& generator);

/// A generator in the same state.
at::Generator copy_of(const at::Generator& generator);

bool same_state(const at::Generator& a, const at::Generator& b);

/// Gives the CPU's default generator another state while this lives, and its own back at the end.
/// What other threads draw meanwhile is drawn from the other state.
class DefaultGeneratorState {
 public:
  explicit DefaultGeneratorState(const at::Generator& state);
  ~DefaultGeneratorState();
  DefaultGeneratorState(const DefaultGeneratorState&) = delete;
  DefaultGeneratorState& operator=(const DefaultGeneratorState&) = delete;

 private:
  at::Generator own_;
};

}  // namespace spillway::recompute
