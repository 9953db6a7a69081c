#include "spillway/recompute/call/recorded_call.h"

#include <algorithm>
#include <utility>

#include "spillway/base/assert.h"

namespace spillway::recompute {

RecordedCall::RecordedCall(std::unique_ptr<CallBody> body) : body_(std::move(body)) {
  SPILLWAY_ASSERT(body_ != nullptr);
}

bool RecordedCall::writes_some() const {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const StorageUse& use) { return use.written; });
}

std::vector<OutputMemory> RecordedCall::run(const AddressOf& address_of) const {
  return body_->run(*this, address_of);
}

}  // namespace spillway::recompute
