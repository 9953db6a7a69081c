#include "torch_call.h"

#include "replay_call.h"
#include "spillway/base/error.h"

namespace spillway::recompute {

Bytes TorchCall::bytes_held() const {
  std::uint64_t bytes = sizeof(*this) + arguments.capacity() * sizeof(c10::IValue) +
                        slots.capacity() * sizeof(TensorSlot) +
                        tensors.capacity() * sizeof(TensorArgument) +
                        storages.capacity() * sizeof(StorageArgument);
  for (const StorageArgument& storage : storages) {
    if (storage.kept != nullptr && storage.kept.use_count() == 1 && !storage.kept->is_referred())
      bytes += storage.kept->size();
    if (storage.before) bytes += storage.before->size();
  }
  constexpr std::uint64_t kGenerator = 5 << 10;
  if (generator.defined()) bytes += kGenerator;
  return Bytes(bytes);
}

std::vector<OutputMemory> TorchCall::run(const RecordedCall& call, const AddressOf& address_of) {
  ReplayCall replay(*this);
  for (std::size_t i = 0; i < storages.size(); ++i) {
    const StorageArgument& storage = storages[i];
    if (!storage.id.is_some()) continue;
    void* address = address_of(storage.id);
    if (address == nullptr)
      throw Error("{} cannot run again: the storage {} among its arguments is not in memory",
                  op.schema().name(), storage.id);
    replay.bind(i, static_cast<std::byte*>(address) + storage.offset);
  }
  replay.run();
  return replay.take_outputs(call.outputs);
}

}  // namespace spillway::recompute
