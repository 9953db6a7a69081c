#include "spillway/runtime/host_workspace.h"

#include "held_storages.h"
#include "last_uses.h"
#include "runtime_parts.h"

namespace spillway::runtime {

bool HostWorkspace::hold(swap::HostHold& hold, std::span<const swap::HostUse> uses) {
  for (const swap::HostUse& each : uses) {
    if (each.use.writes) runtime_.before_write(each.use);
    runtime_.held_->let_go_of_used({&each.use, 1});
  }
  runtime_.last_uses_->note_host(uses);
  return runtime_.engine_->hold_on_host(hold, uses);
}

HostWorkspace::Allocations::Allocations(Runtime& runtime) : runtime_(runtime) {
  runtime_.context().fills_on_host = true;
}

HostWorkspace::Allocations::~Allocations() { runtime_.context().fills_on_host = false; }

}  // namespace spillway::runtime
