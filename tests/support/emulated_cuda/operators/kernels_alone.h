#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace spillway::emulated {

inline c10::DispatchKeySet keys_of_kernels() {
  using Key = c10::DispatchKey;
  return c10::DispatchKeySet({Key::Dense, Key::Quantized, Key::Sparse, Key::SparseCsr,
                              Key::NestedTensor, Key::BackendSelect, Key::Conjugate, Key::Negative,
                              Key::ZeroTensor});
}

/// While it lives, operators that this thread calls go straight to kernels: neither autograd and
/// autocast nor whoever intercepts operators sees what the emulation calls.
class KernelsAlone {
 public:
  KernelsAlone()
      : guard_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
               c10::DispatchKeySet(c10::DispatchKeySet::FULL) - keys_of_kernels()) {}

 private:
  c10::impl::ForceDispatchKeyGuard guard_;
};

}  // namespace spillway::emulated
