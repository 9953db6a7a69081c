#include "device_sums.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "spillway/phantoms/plain_tensor.h"

namespace spillway::split {
namespace {

using allreduce::Element;

/// Of what complex numbers consist of, too, which are added and multiplied each by itself.
c10::ScalarType type_of(Element element) {
  switch (element) {
    case Element::kFloat16: return c10::ScalarType::Half;
    case Element::kBfloat16: return c10::ScalarType::BFloat16;
    case Element::kFloat32:
    case Element::kComplex64: return c10::ScalarType::Float;
    case Element::kFloat64:
    case Element::kComplex128: return c10::ScalarType::Double;
    case Element::kInt32: return c10::ScalarType::Int;
    case Element::kInt64: return c10::ScalarType::Long;
  }
  return c10::ScalarType::Undefined;
}

/// Memory that stays somebody else's.
c10::Storage storage_over(const std::byte* address, Bytes size, c10::Device gpu) {
  return {c10::Storage::use_byte_size_t(), size.count(),
          c10::DataPtr(const_cast<std::byte*>(address), gpu)};
}

at::Tensor numbers_at(const std::byte* address, Bytes size, c10::ScalarType type, c10::Device gpu) {
  phantoms::PlainTensor plain;
  plain.dtype = type;
  plain.sizes = {static_cast<std::int64_t>(size.count() / c10::elementSize(type))};
  plain.strides = {1};
  return plain.over(storage_over(address, size, gpu));
}

/// Elements of 16 bits by a number of 32, and rounded once, as on the host.
void multiply(at::Tensor& numbers, double factor) {
  if (numbers.element_size() > 2) {
    numbers.mul_(factor);
  } else {
    numbers.copy_(numbers.to(at::kFloat).mul_(factor));
  }
}

}  // namespace

device::DeviceId DeviceSums::device() const {
  return {device::DeviceKind::kCuda, static_cast<std::uint16_t>(gpu_.index())};
}

std::shared_ptr<std::byte> DeviceSums::allocate(Bytes size) {
  auto room = std::make_shared<c10::Storage>(made_storage(size.count(), gpu_));
  auto* const bytes = static_cast<std::byte*>(room->mutable_data());
  return {std::move(room), bytes};
}

/// The one that has pages, or one for the bytes alone, and where they begin in it.
std::pair<c10::Storage, std::size_t> DeviceSums::storage_at(const std::byte* bytes,
                                                            Bytes size) const {
  for (const c10::Storage& one : paged_) {
    const auto* const begin = static_cast<const std::byte*>(one.data());
    if (begin <= bytes && bytes < begin + one.nbytes())
      return {one, static_cast<std::size_t>(bytes - begin)};
  }
  return {storage_over(bytes, size, gpu_), 0};
}

device::Event DeviceSums::copy(std::byte* to, const std::byte* from, Bytes size) {
  if (size == Bytes()) return {};
  const auto [source, source_begin] = storage_at(from, size);
  const auto [target, target_begin] = storage_at(to, size);
  devices_.copy_part(target, target_begin, source, source_begin, size.count());
  return {};
}

device::Event DeviceSums::add_up(Element element, std::span<const std::byte* const> sources,
                                 std::byte* target, Bytes size, double factor) {
  if (size == Bytes()) return {};
  const auto below = devices_.below_interception();
  const auto numbers = [&](const std::byte* address) {
    return numbers_at(address, size, type_of(element), gpu_);
  };
  at::Tensor sum = numbers(sources.front());
  // One that is added later is not overwritten before.
  const bool is_later =
      sources.size() > 2 && std::find(sources.begin() + 2, sources.end(), target) != sources.end();
  at::Tensor out = is_later ? at::empty_like(sum) : numbers(target);
  if (sources.size() == 1) {
    if (sources.front() != target) out.copy_(sum);
  } else {
    at::add_out(out, sum, numbers(sources[1]));
  }
  for (std::size_t i = 2; i < sources.size(); ++i) out.add_(numbers(sources[i]));
  if (factor != 1) multiply(out, factor);
  if (is_later) numbers(target).copy_(out);
  return {};
}

}  // namespace spillway::split
