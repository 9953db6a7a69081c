#include "device_rules.h"

#include <c10/core/AutogradState.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "spillway/base/error.h"

namespace spillway::split {

std::string objection_to(const CalledOperator& called, c10::Device device) {
  if (device.has_index() && device.index() != 0)
    return message("{} is on {}: each rank of a split program computes on one GPU, which it calls "
                   "cuda:0; CUDA_VISIBLE_DEVICES tells which one that is",
                   called.name, device.str());
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Device first(device.type(), 0);
  if (guard.getStream(first) != guard.getDefaultStream(first))
    return message("{} is called on a stream of the program's own, or is captured: a split program "
                   "computes on the default stream; let it do so, or train without --split",
                   called.name);
  if (called.op.operator_name().name == "aten::record_stream")
    return message("{} is called: a split program has one stream of each GPU; leave that call out, "
                   "or train without --split",
                   called.name);
  // Else it would run on a thread of autograd's for that GPU, which nobody splits.
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  return {};
}

}  // namespace spillway::split
