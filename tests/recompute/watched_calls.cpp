#include "watched_calls.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace spillway::recompute {
namespace {

thread_local CallWatcher* watcher = nullptr;
thread_local bool inside = false;

void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kWatchedKey);
  if (watcher == nullptr || inside || watcher->is_made_of_parts(op, *stack)) {
    op.redispatchBoxed(below, stack);
    return;
  }
  inside = true;
  struct Leave {
    ~Leave() { inside = false; }
  } leave;
  watcher->around(op, *stack, [&] {
    const c10::impl::ExcludeDispatchKeyGuard nested_pass(kWatchedKey);
    op.redispatchBoxed(below, stack);
  });
}

void register_once() {
  static const auto* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kWatchedKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&intercept>());
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace

Watched::Watched(CallWatcher& by) {
  register_once();
  c10::impl::tls_set_dispatch_key_included(kWatchedKey, true);
  watcher = &by;
}

Watched::~Watched() {
  watcher = nullptr;
  c10::impl::tls_set_dispatch_key_included(kWatchedKey, false);
}

}  // namespace spillway::recompute
