#include "python_calls.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/PyInterpreterHooks.h>

namespace spillway::torch_binding {

void carry_out_by_python(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                         torch::jit::Stack& stack, c10::DispatchKey ours) {
  using c10::DispatchKeySet;
  const c10::impl::PyInterpreter* const interpreter = c10::impl::getGlobalPyInterpreter();
  if (interpreter == nullptr) {
    op.redispatchBoxed(below, &stack);
    return;
  }
  const DispatchKeySet from_python_on =
      DispatchKeySet(DispatchKeySet::FULL_AFTER, c10::DispatchKey::Python) |
      DispatchKeySet(c10::DispatchKey::Python);
  const DispatchKeySet above = DispatchKeySet(DispatchKeySet::FULL) ^ from_python_on;
  const c10::impl::ExcludeDispatchKeyGuard hidden(above.remove(ours));
  (*interpreter)->dispatch(op, &stack);
}

}  // namespace spillway::torch_binding
