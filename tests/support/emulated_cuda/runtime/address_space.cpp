#include "address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "../driver/mappings.h"
#include "devices.h"
#include "failure.h"
#include "faults.h"
#include "settings.h"

namespace spillway::emulated {
namespace {

// No program allocates so much in its life, so that no address is used twice.
constexpr std::size_t kAddressesPerDevice = std::size_t{1} << 42;

std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

AddressSpace& AddressSpace::of_process() {
  static auto* space = new AddressSpace;  // Leaked: workers use it to the end.
  return *space;
}

AddressSpace::AddressSpace() {
  handle_faults();
  const std::size_t count = settings().devices.size();
  used_.resize(count);
  if (count == 0) return;
  void* all = mmap(nullptr, kAddressesPerDevice * count, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) die("no addresses for the devices: " + std::string(std::strerror(errno)));
  first_ = number(all);
  last_ = first_ + kAddressesPerDevice * count;
  for (std::size_t i = 0; i < count; ++i) next_.push_back(first_ + i * kAddressesPerDevice);
}

// With a gap behind it, so that what runs over the end of an allocation does not meet the next one.
// Mutex held.
std::uintptr_t AddressSpace::next_range(int device, std::size_t bytes, std::size_t alignment) {
  const auto i = static_cast<std::size_t>(device);
  const std::uintptr_t begin = (next_[i] + alignment - 1) / alignment * alignment;
  next_[i] = begin + bytes + kPage;
  if (next_[i] > first_ + (i + 1) * kAddressesPerDevice)
    die("the addresses of device " + std::to_string(device) + " are used up");
  return begin;
}

void* AddressSpace::allocate(int device, std::size_t bytes) {
  const std::size_t whole = whole_pages(bytes);
  if (!take(device, whole)) return nullptr;
  const std::lock_guard lock(mutex_);
  const std::uintptr_t begin = next_range(device, whole, kPage);
  auto* address = reinterpret_cast<void*>(begin);
  if (mprotect(address, whole, PROT_READ | PROT_WRITE) != 0) {
    die("no host memory for " + std::to_string(whole) +
        " bytes of device memory: " + std::strerror(errno));
  }
  if (settings().poison) std::memset(address, 0xFF, whole);
  ranges_[begin] = {begin, whole, Kind::kDevice, device};
  return address;
}

std::optional<Range> AddressSpace::free(const void* address) {
  auto range = remove(address, Kind::kDevice);
  if (!range) return std::nullopt;
  mmap(const_cast<void*>(address), range->bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  give_back(range->device, range->bytes);
  return range;
}

bool AddressSpace::mark_freed(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto at = ranges_.find(number(address));
  if (at == ranges_.end() || at->second.kind != Kind::kDevice || at->second.freed) return false;
  at->second.freed = true;
  return true;
}

std::uintptr_t AddressSpace::reserve(int device, std::size_t bytes, std::size_t alignment) {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t begin = next_range(device, bytes, std::max(alignment, settings().grain));
  ranges_[begin] = {begin, bytes, Kind::kReserved, device};
  return begin;
}

bool AddressSpace::add_host(const void* address, std::size_t bytes, Kind kind, int device) {
  const std::lock_guard lock(mutex_);
  const std::uintptr_t begin = number(address);
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < begin + bytes) return false;
  if (next != ranges_.begin() && std::prev(next)->second.end() > begin) return false;
  ranges_[begin] = {begin, bytes, kind, device};
  return true;
}

std::optional<Range> AddressSpace::remove(const void* address, Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto at = ranges_.find(number(address));
  if (at == ranges_.end() || at->second.kind != kind) return std::nullopt;
  const Range range = at->second;
  ranges_.erase(at);
  return range;
}

std::optional<Range> AddressSpace::find_locked(std::uintptr_t address) const {
  auto at = ranges_.upper_bound(address);
  if (at == ranges_.begin()) return std::nullopt;
  --at;
  if (address >= at->second.end()) return std::nullopt;
  return at->second;
}

std::optional<Range> AddressSpace::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  return find_locked(number(address));
}

bool AddressSpace::is_pinned(const void* address) const {
  const auto range = find(address);
  return range && (range->kind == Kind::kHost || range->kind == Kind::kRegistered);
}

bool AddressSpace::take(int device, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::size_t& used = used_[static_cast<std::size_t>(device)];
  if (bytes > settings().memory || used > settings().memory - bytes) return false;
  used += bytes;
  return true;
}

void AddressSpace::give_back(int device, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  used_[static_cast<std::size_t>(device)] -= bytes;
}

std::size_t AddressSpace::used(int device) const {
  const std::lock_guard lock(mutex_);
  return used_[static_cast<std::size_t>(device)];
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void check_mapped(const void* address, std::size_t bytes, const std::string& what, Moment moment) {
  const AddressSpace& space = AddressSpace::of_process();
  if (bytes == 0 || !space.is_device(address)) return;
  const std::string here = "'" + what + "' uses device memory at " + hex(address);
  const auto range = space.find(address);
  if (!range) die(here + ", which was freed or never allocated");
  if (range->freed && moment == Moment::kSubmission)
    die(here + ", which cudaFreeAsync has freed before");
  if (number(address) + bytes > range->end()) {
    die(here + ", " + std::to_string(bytes) + " bytes of which " +
        std::to_string(range->end() - number(address)) + " are in the allocation");
  }
  if (range->kind != Kind::kReserved) return;
  if (const auto hole = Mappings::of_process().first_hole(number(address), bytes)) {
    die("'" + what + "' uses device memory at " + hex(reinterpret_cast<void*>(hole->address)) +
        ", where " + hole->why);
  }
}

void check_access(int device, const void* address, std::size_t bytes, const char* what, By by) {
  const auto range = AddressSpace::of_process().find(address);
  if (bytes == 0 || !range) return;
  std::string here = "'";
  here.append(what).append("' of device ").append(std::to_string(device));
  here.append(" uses memory at ").append(hex(address));
  if (range->kind == Kind::kReserved &&
      !Mappings::of_process().is_open_to(device, number(address), bytes))
    die(here + ", where cuMemSetAccess has given access to other devices alone");
  if (range->kind == Kind::kDevice && by == By::kKernel && range->device != device &&
      !is_peer_enabled(device, range->device))
    die(here + " of device " + std::to_string(range->device) +
        ", and cudaDeviceEnablePeerAccess was not called");
}

}  // namespace spillway::emulated
