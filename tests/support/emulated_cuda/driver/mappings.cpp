#include "mappings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "../runtime/address_space.h"
#include "../runtime/failure.h"
#include "../runtime/settings.h"

namespace spillway::emulated {
namespace {

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
Chunk* chunk_of(CUmemGenericAllocationHandle handle) { return reinterpret_cast<Chunk*>(handle); }
CUmemGenericAllocationHandle handle_of(Chunk* chunk) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(chunk);
}
bool whole(std::size_t bytes) { return bytes != 0 && bytes % settings().grain == 0; }

[[noreturn]] void die_of(const char* call) {
  die(std::string(call) + " refused to emulate virtual memory: " + std::strerror(errno));
}

}  // namespace

CUmemAccess_flags Mappings::Mapping::most_access() const {
  CUmemAccess_flags most = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (const auto& [device, flags] : access) most = std::max(most, flags);
  return most;
}

Mappings& Mappings::of_process() {
  static auto* all = new Mappings;  // Leaked: workers use it to the end.
  return *all;
}

Mappings::Mappings() : file_(memfd_create("emulated_device", MFD_CLOEXEC)) {
  if (file_ < 0) die_of("memfd_create");
}

bool Mappings::is_chunk(CUmemGenericAllocationHandle handle) const {
  return chunks_.count(chunk_of(handle)) != 0;
}

std::size_t Mappings::room_for(std::size_t bytes) {
  if (const auto hole = holes_.find(bytes); hole != holes_.end()) {
    const std::size_t offset = hole->second;
    holes_.erase(hole);
    return offset;
  }
  const std::size_t offset = file_bytes_;
  file_bytes_ += bytes;
  if (ftruncate(file_, static_cast<off_t>(file_bytes_)) != 0) die_of("ftruncate");
  return offset;
}

CUresult Mappings::create(CUmemGenericAllocationHandle* handle, std::size_t bytes, int device,
                          bool serves_others) {
  if (!whole(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!AddressSpace::of_process().take(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(mutex_);
  auto* chunk = new Chunk{
      .bytes = bytes, .device = device, .offset = room_for(bytes), .serves_others = serves_others};
  chunks_.insert(chunk);
  *handle = handle_of(chunk);
  return CUDA_SUCCESS;
}

CUresult Mappings::retain(CUmemGenericAllocationHandle* handle, std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  auto at = mappings_.upper_bound(address);
  if (at == mappings_.begin()) return CUDA_ERROR_INVALID_VALUE;
  --at;
  if (address >= at->first + at->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  ++at->second.chunk->references;
  *handle = handle_of(at->second.chunk);
  return CUDA_SUCCESS;
}

void Mappings::drop(Chunk* chunk) {
  if (--chunk->references > 0) return;
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(chunk->offset),
            static_cast<off_t>(chunk->bytes));
  holes_.emplace(chunk->bytes, chunk->offset);
  AddressSpace::of_process().give_back(chunk->device, chunk->bytes);
  chunks_.erase(chunk);
  delete chunk;
}

CUresult Mappings::release(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  if (!is_chunk(handle)) return CUDA_ERROR_INVALID_VALUE;
  drop(chunk_of(handle));
  return CUDA_SUCCESS;
}

std::optional<int> Mappings::device_of(CUmemGenericAllocationHandle handle) const {
  const std::lock_guard lock(mutex_);
  if (!is_chunk(handle)) return std::nullopt;
  return chunk_of(handle)->device;
}

CUresult Mappings::map(std::uintptr_t address, std::size_t bytes,
                       CUmemGenericAllocationHandle handle) {
  const auto range = AddressSpace::of_process().find(pointer(address));
  const std::lock_guard lock(mutex_);
  if (!range || range->kind != Kind::kReserved || address % settings().grain != 0 ||
      address + bytes > range->end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!is_chunk(handle) || chunk_of(handle)->bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != mappings_.begin()) {
    const auto& [before, mapping] = *std::prev(next);
    if (before + mapping.bytes > address) return CUDA_ERROR_INVALID_VALUE;
  }
  Chunk* chunk = chunk_of(handle);
  void* mapped = mmap(pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file_,
                      static_cast<off_t>(chunk->offset));
  if (mapped == MAP_FAILED) die_of("mmap");
  ++chunk->references;
  mappings_[address] = {bytes, chunk, {}};
  return CUDA_SUCCESS;
}

bool Mappings::is_whole_locked(std::uintptr_t address, std::size_t bytes) const {
  std::uintptr_t at = address;
  while (at < address + bytes) {
    const auto mapping = mappings_.find(at);
    if (mapping == mappings_.end()) return false;
    at += mapping->second.bytes;
  }
  return bytes != 0 && at == address + bytes;
}

bool Mappings::any_in(std::uintptr_t address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto at = mappings_.lower_bound(address);
  return at != mappings_.end() && at->first < address + bytes;
}

bool Mappings::is_whole(std::uintptr_t address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return is_whole_locked(address, bytes);
}

CUresult Mappings::set_access(std::uintptr_t address, std::size_t bytes, int device,
                              CUmemAccess_flags flags) {
  const std::lock_guard lock(mutex_);
  if (!is_whole_locked(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  for (auto at = mappings_.find(address); at != mappings_.end() && at->first < address + bytes;
       ++at) {
    Mapping& mapping = at->second;
    mapping.access[device] = flags;
    // For the host, who works for all devices.
    const CUmemAccess_flags most = mapping.most_access();
    int access = PROT_NONE;
    if (most == CU_MEM_ACCESS_FLAGS_PROT_READ) access = PROT_READ;
    if (most == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) access = PROT_READ | PROT_WRITE;
    if (mprotect(pointer(at->first), mapping.bytes, access) != 0) die_of("mprotect");
    if (!settings().poison || mapping.chunk->filled || (access & PROT_WRITE) == 0) continue;
    std::memset(pointer(at->first), 0xFF, mapping.bytes);
    mapping.chunk->filled = true;
  }
  return CUDA_SUCCESS;
}

CUresult Mappings::unmap(std::uintptr_t address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!is_whole_locked(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  void* empty = mmap(pointer(address), bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (empty == MAP_FAILED) die_of("mmap");
  for (auto at = mappings_.find(address); at != mappings_.end() && at->first < address + bytes;) {
    drop(at->second.chunk);
    at = mappings_.erase(at);
  }
  return CUDA_SUCCESS;
}

std::optional<Mappings::Hole> Mappings::first_hole(std::uintptr_t address,
                                                   std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  std::uintptr_t at = address;
  while (at < address + bytes) {
    auto mapping = mappings_.upper_bound(at);
    if (mapping == mappings_.begin()) return Hole{at, "nothing is mapped"};
    --mapping;
    const std::uintptr_t end = mapping->first + mapping->second.bytes;
    if (at >= end) return Hole{at, "nothing is mapped"};
    if (mapping->second.most_access() == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
      return Hole{at, "a chunk is mapped that cuMemSetAccess was not called for"};
    }
    at = end;
  }
  return std::nullopt;
}

bool Mappings::is_open_to(int device, std::uintptr_t address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto at = mappings_.upper_bound(address);
  if (at != mappings_.begin()) --at;
  for (; at != mappings_.end() && at->first < address + bytes; ++at) {
    const auto flags = at->second.access.find(device);
    if (flags == at->second.access.end() || flags->second == CU_MEM_ACCESS_FLAGS_PROT_NONE)
      return false;
  }
  return true;
}

bool Mappings::serves_others(std::uintptr_t address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto at = mappings_.upper_bound(address);
  if (at != mappings_.begin()) --at;
  for (; at != mappings_.end() && at->first < address + bytes; ++at)
    if (!at->second.chunk->serves_others) return false;
  return true;
}

std::vector<Mappings::Piece> Mappings::beneath(std::uintptr_t address, std::size_t bytes) const {
  constexpr std::uintptr_t kFirstNumber = std::uintptr_t{1} << 63;  // No address of a program.
  const std::uintptr_t end = address + bytes;
  const std::lock_guard lock(mutex_);
  std::vector<Piece> pieces;
  auto at = mappings_.upper_bound(address);
  if (at != mappings_.begin()) --at;
  for (; at != mappings_.end() && at->first < end; ++at) {
    const std::uintptr_t from = std::max(address, at->first);
    const std::uintptr_t to = std::min(end, at->first + at->second.bytes);
    if (from >= to) continue;
    const std::uintptr_t physical = kFirstNumber + at->second.chunk->offset + (from - at->first);
    const bool is_next = !pieces.empty() && pieces.back().address + pieces.back().bytes == from &&
                         pieces.back().physical + pieces.back().bytes == physical;
    if (is_next)
      pieces.back().bytes += to - from;
    else
      pieces.push_back({from, physical, to - from});
  }
  return pieces;
}

}  // namespace spillway::emulated
