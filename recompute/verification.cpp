#include <ATen/Context.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "byte_copy.h"
#include "replay_call.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/recompute/generators.h"
#include "spillway/recompute/replay_engine.h"
#include "tensor_facts.h"
#include "torch_call.h"

namespace spillway::recompute {
namespace {

/// "in 12 of 4096 bytes, first at 96"; empty when they are equal.
std::string difference(const std::byte* ours, const std::byte* theirs, std::size_t size) {
  if (size == 0 || std::memcmp(ours, theirs, size) == 0) return {};
  std::size_t count = 0;
  std::size_t first = size;
  for (std::size_t i = 0; i < size; ++i) {
    if (ours[i] == theirs[i]) continue;
    ++count;
    first = std::min(first, i);
  }
  return message("in {} of {} bytes, first at {}", count, size, first);
}

/// The same of memory of a device.
std::string difference(const std::byte* ours, const std::byte* theirs, std::size_t size,
                       c10::Device device) {
  return difference(BytesOnHost(ours, size, device).data(),
                    BytesOnHost(theirs, size, device).data(), size);
}

std::string difference(const at::Tensor& ours, const at::Tensor& theirs) {
  if (ours.sizes() != theirs.sizes() || ours.strides() != theirs.strides() ||
      ours.scalar_type() != theirs.scalar_type() || ours.is_conj() != theirs.is_conj() ||
      ours.is_neg() != theirs.is_neg())
    return message("in sizes, strides or type: {}{} is not {}{}", ours.scalar_type(), ours.sizes(),
                   theirs.scalar_type(), theirs.sizes());
  const auto start = [](const at::Tensor& tensor) {
    return storage_address(*tensor.unsafeGetTensorImpl()) +
           static_cast<std::size_t>(tensor.storage_offset()) * tensor.itemsize();
  };
  if (ours.is_non_overlapping_and_dense())
    return difference(start(ours), start(theirs), ours.nbytes(), ours.device());
  const at::Tensor own_bytes = ours.contiguous();
  const at::Tensor their_bytes = theirs.contiguous();
  return difference(start(own_bytes), start(their_bytes), own_bytes.nbytes(), ours.device());
}

/// A sum that any change of a bit changes, nearly surely.
std::uint64_t fingerprint(const std::byte* data, std::size_t size) {
  std::uint64_t hash = size;
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, std::min(sizeof word, size - i));
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
  }
  return hash;
}

std::vector<std::uint64_t> fingerprints_of_read(const TorchCall& call) {
  std::vector<std::uint64_t> sums;
  for (const StorageArgument& storage : call.storages)
    if (storage.id.is_some() && !storage.before)
      sums.push_back(fingerprint(BytesOnHost(storage.address, storage.bytes, storage.device).data(),
                                 storage.bytes));
  return sums;
}

/// Both lists hold the same tensors, one of each call.
std::string compare(const torch::jit::Stack& ours, c10::ArrayRef<c10::IValue> theirs) {
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  for (const c10::IValue& value : ours)
    for_each_tensor(value, [&](const at::Tensor& tensor) { first.push_back(tensor); });
  for (const c10::IValue& value : theirs)
    for_each_tensor(value, [&](const at::Tensor& tensor) { second.push_back(tensor); });
  if (first.size() != second.size())
    return message("it returned {}, not {}", counted(first.size(), "tensor"), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::string text = difference(first[i], second[i]);
    if (!text.empty()) return message("its result {} differs {}", i, text);
  }
  return {};
}

std::string compare_written(const TorchCall& call) {
  for (const StorageArgument& storage : call.storages) {
    if (!storage.before) continue;
    const std::string text =
        difference(storage.before->data(), storage.address, storage.bytes, storage.device);
    if (!text.empty()) return "what it wrote differs " + text;
  }
  return {};
}

/// Runs the call again, with copies of what it writes.
void run(ReplayCall& replay, const TorchCall& call) {
  for (std::size_t i = 0; i < call.storages.size(); ++i) {
    const StorageArgument& storage = call.storages[i];
    if (!storage.id.is_some()) continue;
    // A kernel may write past its declaration: the fingerprints tell.
    replay.bind(i,
                storage.before ? storage.before->data() : const_cast<std::byte*>(storage.address));
  }
  replay.run();
}

std::string run_and_compare(const RecordedCall& recorded, const TorchCall& call,
                            c10::ArrayRef<c10::IValue> results) {
  ReplayCall replay(call);
  run(replay, call);
  std::string text = compare(replay.results(), results);
  if (text.empty()) text = compare_written(call);
  replay.take_outputs(recorded.outputs);
  return text;
}

at::Generator state_now(c10::Device device) {
  return copy_of(at::globalContext().defaultGenerator(device));
}

/// Whether the default generator moves each time that the call runs. Once tells nothing: another
/// thread may have drawn meanwhile.
bool keeps_drawing(const TorchCall& call, c10::Device device) {
  constexpr int kTimes = 5;
  for (int i = 0; i < kTimes; ++i) {
    const at::Generator before = state_now(device);
    // What it writes has no more use; values do not decide whether it draws.
    ReplayCall replay(call);
    run(replay, call);
    if (same_state(before, state_now(device))) return false;
  }
  return true;
}

}  // namespace

void ReplayEngine::prepare_verification(RecordedCall& call) {
  for (StorageArgument& storage : TorchCall::of(call).storages)
    if (storage.id.is_some() && storage.written)
      storage.before.emplace(storage.address, storage.bytes, storage.device);
}

std::string ReplayEngine::verify(RecordedCall& recorded, c10::ArrayRef<c10::IValue> results) {
  TorchCall& call = TorchCall::of(recorded);
  const at::Generator before = state_now(options_.device);
  const std::vector<std::uint64_t> inputs = fingerprints_of_read(call);
  std::string text;
  try {
    text = run_and_compare(recorded, call, results);
    if (text.empty() && inputs != fingerprints_of_read(call))
      text = "it changed an argument that its schema calls read only";
    if (text.empty() && !same_state(before, state_now(options_.device)) &&
        keeps_drawing(call, options_.device))
      text = "it drew random numbers without saying so";
  } catch (const std::exception& error) {
    text = message("it failed when it ran again: {}", error.what());
  }
  for (StorageArgument& storage : call.storages) storage.before.reset();
  return text;
}

}  // namespace spillway::recompute
