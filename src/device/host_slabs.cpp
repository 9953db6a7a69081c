#include "spillway/device/host_slabs.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::device {
namespace {

constexpr std::uint64_t kDiskBlock = 4096;

Bytes total_size(const HostSlabsOptions& options) {
  const std::uint64_t size = options.slab_size.count();
  if (size == 0 || size % kDiskBlock != 0)
    throw ConfigError("slabs of {} bytes are not possible: give a multiple of {}", size,
                      kDiskBlock);
  if (options.slab_count == 0) throw ConfigError("a pool without slabs is not possible");
  return options.slab_size * options.slab_count;
}

std::shared_ptr<std::byte> from_heap(Bytes size) {
  void* const memory = std::aligned_alloc(kDiskBlock, size.count());
  if (memory == nullptr)
    throw IoError("cannot reserve {} of memory: {}", size, std::strerror(ENOMEM));
  return {static_cast<std::byte*>(memory), [](std::byte* begin) { std::free(begin); }};
}

std::shared_ptr<std::byte> memory_for(const HostSlabsOptions& options) {
  const Bytes size = total_size(options);
  return options.memory ? options.memory(size) : from_heap(size);
}

}  // namespace

HostSlab::HostSlab(HostSlab&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_), span_(other.span_) {}

HostSlab& HostSlab::operator=(HostSlab&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(index_, other.index_);
  std::swap(span_, other.span_);
  return *this;
}

HostSlab::~HostSlab() {
  if (pool_ != nullptr) pool_->put_back(index_);
}

HostSlabs::HostSlabs(Device& device, const HostSlabsOptions& options)
    : device_(device), options_(options), memory_(memory_for(options)) {
  free_.reserve(options.slab_count);
  for (std::uint32_t i = options.slab_count; i > 0; --i) free_.push_back(i - 1);
  if (options.pinning == Pinning::kPageable) return;
  why_pageable_ = device_.pin_host(span());
  if (why_pageable_.empty()) pinning_ = Pinning::kPinned;
}

HostSlabs::~HostSlabs() {
  SPILLWAY_ASSERT(free_.size() == options_.slab_count);
  if (pinning_ == Pinning::kPinned) device_.unpin_host(span());
}

std::optional<HostSlab> HostSlabs::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::nullopt;
  const std::uint32_t index = free_.back();
  free_.pop_back();
  return HostSlab(*this, index, span().part(options_.slab_size * index, options_.slab_size));
}

std::uint32_t HostSlabs::available() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::uint32_t>(free_.size());
}

void HostSlabs::put_back(std::uint32_t index) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(index);
}

}  // namespace spillway::device
