#include "program_data.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "spillway/base/mix.h"
#include "spillway/phantoms/operator_names.h"
#include "spillway/runtime/recording/op_uses.h"

namespace spillway::split {
namespace {

using pipeline::StorageOrdinal;

constexpr std::size_t kAlignment = 64;

struct Dimension {
  std::int64_t size = 1;
  std::size_t step = 0;  ///< Bytes.
};

/// From the outermost in memory to the innermost, without those that show nothing new.
std::vector<Dimension> dimensions_of(const at::Tensor& tensor, std::size_t item) {
  std::vector<Dimension> all;
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1 && tensor.stride(i) > 0)
      all.push_back({tensor.size(i), static_cast<std::size_t>(tensor.stride(i)) * item});
  std::stable_sort(all.begin(), all.end(), [](const Dimension& one, const Dimension& other) {
    return one.step > other.step;
  });
  return all;
}

/// Takes off the dimensions that lie in memory without gaps, and returns their bytes.
std::size_t take_run(std::vector<Dimension>& dimensions, std::size_t item) {
  std::size_t run = item;
  while (!dimensions.empty() && dimensions.back().step == run) {
    run *= static_cast<std::size_t>(dimensions.back().size);
    dimensions.pop_back();
  }
  return run;
}

/// Hashes pieces, the small ones together.
class Hashed {
 public:
  Hashed() { XXH3_64bits_reset(state_.get()); }
  void add(const std::byte* piece, std::size_t size) {
    if (size > kept_.size() - used_) flush();
    if (size > kept_.size()) {
      XXH3_64bits_update(state_.get(), piece, size);
      return;
    }
    std::memcpy(kept_.data() + used_, piece, size);
    used_ += size;
  }
  std::uint64_t end() {
    flush();
    return XXH3_64bits_digest(state_.get());
  }

 private:
  void flush() {
    XXH3_64bits_update(state_.get(), kept_.data(), used_);
    used_ = 0;
  }

  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_{XXH3_createState(),
                                                                        &XXH3_freeState};
  std::array<std::byte, 4096> kept_;
  std::size_t used_ = 0;
};

void add_all(Hashed& hash, const std::byte* at, std::span<const Dimension> outer, std::size_t run) {
  if (outer.empty()) {
    hash.add(at, run);
    return;
  }
  for (std::int64_t i = 0; i < outer.front().size; ++i)
    add_all(hash, at + static_cast<std::size_t>(i) * outer.front().step, outer.subspan(1), run);
}

/// Of what a tensor shows, without its bytes.
std::uint64_t number_of_view(const phantoms::PlainTensor& tensor) {
  std::uint64_t number =
      mix(static_cast<std::uint64_t>(tensor.dtype), static_cast<std::uint64_t>(tensor.offset));
  for (const std::int64_t size : tensor.sizes)
    number = mix(number, static_cast<std::uint64_t>(size));
  for (const std::int64_t stride : tensor.strides)
    number = mix(number, static_cast<std::uint64_t>(stride));
  return number;
}

c10::Storage copy_of(const std::byte* from, std::size_t before, std::size_t size) {
  c10::Storage copy = made_storage(before + size, c10::Device(c10::DeviceType::CPU));
  if (size > 0) std::memcpy(static_cast<std::byte*>(copy.mutable_data()) + before, from, size);
  return copy;
}

/// A number of the bytes that a tensor shows, whatever lies between them.
std::uint64_t number_of_bytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  const std::size_t item = tensor.element_size();
  const auto* const first =
      static_cast<const std::byte*>(tensor.unsafeGetTensorImpl()->unsafe_storage().data()) +
      static_cast<std::size_t>(tensor.storage_offset()) * item;
  std::vector<Dimension> dimensions = dimensions_of(tensor, item);
  const std::size_t run = take_run(dimensions, item);
  if (dimensions.empty()) return XXH3_64bits(first, run);
  Hashed hash;
  add_all(hash, first, dimensions, run);
  return hash.end();
}

/// The same of a tensor of a GPU.
std::uint64_t number_of_bytes(const at::Tensor& tensor, const DeviceBytes& devices) {
  const c10::Storage storage = tensor.storage();
  c10::Storage on_host = made_storage(storage.nbytes(), c10::Device(c10::DeviceType::CPU));
  devices.copy_to_host(on_host.mutable_data(), storage, 0, storage.nbytes());
  return number_of_bytes(
      phantoms::PlainTensor::of(*tensor.unsafeGetTensorImpl()).over(std::move(on_host)));
}

/// A copy of the bytes that a tensor shows, at an address as aligned as theirs: vectorised sums
/// begin at aligned ones, so another one might give other bits. `tensor` then lies in the copy.
c10::Storage copy_of_bytes(const c10::StorageImpl& storage, phantoms::PlainTensor& tensor) {
  const std::size_t item = c10::elementSize(tensor.dtype);
  const runtime::ViewBytes shown = runtime::bytes_of_view(
      static_cast<std::uint64_t>(tensor.offset), {tensor.sizes.data(), tensor.sizes.size()},
      {tensor.strides.data(), tensor.strides.size()}, item);
  const std::byte* const from = static_cast<const std::byte*>(storage.data()) + shown.begin;
  const std::size_t before = reinterpret_cast<std::uintptr_t>(from) % kAlignment / item * item;
  tensor.offset = static_cast<std::int64_t>(before / item);
  return copy_of(from, before, shown.size.count());
}

/// The same of all bytes of the storage, for operators that count from its begin.
c10::Storage copy_of_storage(const c10::StorageImpl& storage) {
  return copy_of(static_cast<const std::byte*>(storage.data()), 0, storage.nbytes());
}

}  // namespace

void ProgramData::note_met(std::uint64_t next) {
  for (; next_ < next; ++next_) by_hand_.try_emplace(StorageOrdinal(next_));
}

void ProgramData::note_ended(StorageOrdinal storage) {
  by_hand_.erase(storage);
  made_of_.erase(storage);
}

void ProgramData::add(StorageOrdinal storage) {
  const auto found = made_of_.find(storage);
  if (found != made_of_.end()) number_ = mix(number_, found->second);
}

std::size_t ProgramData::size_read() const {
  std::size_t size = 0;
  for (const Read& one : read_) size += one.tensor->nbytes();
  return size;
}

void ProgramData::add_read() {
  for (const Read& one : read_) add_bytes(one.storage, *one.tensor);
  read_.clear();
}

void ProgramData::add_bytes(std::optional<StorageOrdinal> storage, const at::Tensor& tensor) {
  const std::uint64_t bytes =
      tensor.is_cpu() ? number_of_bytes(tensor) : number_of_bytes(tensor, devices_);
  number_ = mix(number_, bytes);
  if (!storage) return;
  const auto found = by_hand_.find(*storage);
  if (found == by_hand_.end()) return;
  found->second.view = number_of_view(phantoms::PlainTensor::of(*tensor.unsafeGetTensorImpl()));
  found->second.shown = mix(found->second.view, bytes);
}

void ProgramData::end_call(std::span<const pipeline::OperatorUse> uses,
                           std::span<const pipeline::MadeStorage> made, bool is_compared,
                           bool begins_anew) {
  if (number_ == 0 && made_of_.empty()) return;
  const auto hang = [&](StorageOrdinal storage, bool keeps) {
    if (!keeps || is_compared) made_of_.erase(storage);
    if (number_ == 0 || is_compared) return;
    std::uint64_t& number = made_of_[storage];
    number = mix(number, number_);
  };
  for (std::size_t i = 0; i < uses.size(); ++i)
    if (uses[i].writes) hang(uses[i].storage, !(i == 0 && begins_anew));
  for (const pipeline::MadeStorage& one : made) hang(one.storage, false);
}

c10::Storage ProgramData::copy_for(const c10::OperatorHandle& op,
                                   std::optional<StorageOrdinal> storage, c10::StorageImpl& bytes,
                                   phantoms::PlainTensor& tensor) {
  if (!bytes.device().is_cpu())
    return devices_.copy_of(
        c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&bytes)));
  if (phantoms::sees_offsets(op.operator_name().name)) return copy_of_storage(bytes);
  return storage && by_hand_.contains(*storage) ? copy_of_shown(*storage, bytes, tensor)
                                                : copy_of_bytes(bytes, tensor);
}

c10::Storage ProgramData::copy_of_shown(StorageOrdinal storage, const c10::StorageImpl& bytes,
                                        phantoms::PlainTensor& tensor) {
  ByHand& kept = by_hand_.at(storage);
  // A call may take several views of one storage.
  if (kept.view != number_of_view(tensor)) return copy_of_bytes(bytes, tensor);
  if (kept.copy && kept.copied == kept.shown)
    if (auto copy = kept.copy->lock()) {
      tensor.offset = kept.offset;
      return c10::Storage(std::move(copy));
    }
  c10::Storage copy = copy_of_bytes(bytes, tensor);
  kept.copied = kept.shown;
  kept.copy.emplace(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(copy.unsafeGetStorageImpl()));
  kept.offset = tensor.offset;
  return copy;
}

}  // namespace spillway::split
