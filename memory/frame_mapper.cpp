#include "spillway/memory/frame_mapper.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "raw_calls.h"
#include "signal/factory.h"
#include "spillway/base/error.h"
#include "userfaultfd/factory.h"

namespace spillway::memory {
namespace {

// In the order of the enumeration, best first.
constexpr std::array<Named<MapperKind>, 4> kKinds{
    {{"userfaultfd", MapperKind::kUserfaultfd},
     {"userfaultfd-user", MapperKind::kUserfaultfdUser},
     {"signal", MapperKind::kSignal},
     {"copy", MapperKind::kCopy}}};

/// Serves the few accesses of a probe: an empty page gets the frame, a write-protected one becomes
/// writable.
class ProbeSink final : public AccessSink {
 public:
  explicit ProbeSink(FrameMapper& mapper) : mapper_(mapper) {}

  void begin_access(PageIndex, Access access) override { serve(access); }
  TrapEnd serve_access(PageIndex, Access access, const std::function<bool()>&) override {
    serve(access);
    return TrapEnd::kServed;
  }

  /// Waits until the fault that let the caller continue has been served to its end.
  int served(Access access) {
    const std::lock_guard lock(mutex_);
    return access == Access::kRead ? reads_ : writes_;
  }

  FrameMapper::Regions regions;

 private:
  void serve(Access access) {
    const std::lock_guard lock(mutex_);
    ++(access == Access::kRead ? reads_ : writes_);
    // Whatever is reported, the thread must get on: the counts tell afterwards what went wrong.
    if (std::exchange(is_mapped_, true)) {
      mapper_.allow_writes(regions.arena, 1);
    } else {
      mapper_.map(regions.arena, regions.pool, Access::kRead);
    }
  }

  FrameMapper& mapper_;
  std::mutex mutex_;
  int reads_ = 0;
  int writes_ = 0;
  bool is_mapped_ = false;
};

/// A mapper and its sink, which must outlive it.
struct Trial {
  explicit Trial(std::unique_ptr<FrameMapper> tried) : mapper(std::move(tried)), sink(*mapper) {}
  ~Trial() { mapper.reset(); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  std::unique_ptr<FrameMapper> mapper;
  ProbeSink sink;
};

// The frame goes to the arena on a read, is written after that was forbidden, and comes back.
void try_mapper(std::unique_ptr<FrameMapper> mapper) {
  Trial trial(std::move(mapper));
  ProbeSink& sink = trial.sink;
  sink.regions = trial.mapper->reserve(kPageSize, kPageSize, sink);
  std::byte* const arena = sink.regions.arena;
  trial.mapper->prepare(arena, 1);
  volatile auto* page = reinterpret_cast<volatile unsigned char*>(arena);
  volatile auto* frame = reinterpret_cast<volatile unsigned char*>(sink.regions.pool);
  require_advice(sink.regions.pool, kPageBytes);
  populate(sink.regions.pool, kPageBytes);
  frame[kPageBytes - 1] = 0x5a;
  const bool was_moved = page[kPageBytes - 1] == 0x5a;
  const int reads = sink.served(Access::kRead);
  trial.mapper->forbid_writes(arena, 1);
  page[0] = 0xa5;
  const int writes = sink.served(Access::kWrite);
  const bool left = trial.mapper->unmap(sink.regions.pool, arena) == MoveResult::kMoved;
  if (!was_moved || !left || frame[0] != 0xa5 || reads != 1 || writes != 1) {
    throw UnsupportedError(
        "moving a trial page went wrong: {} read and {} write faults instead of 1 and 1; its bytes "
        "{}, and it {}",
        reads, writes, was_moved ? "arrived" : "did not arrive", left ? "left" : "did not leave");
  }
}

// What libraries, threads and the heap of the trainer may need.
constexpr std::uint64_t kMappingsOfOthers = 4096;

/// 0: moving and protecting pages leaves the kernel's mappings as they are.
std::uint64_t mappings_per_frame(MapperKind kind) {
  switch (kind) {
    case MapperKind::kUserfaultfd:
    case MapperKind::kUserfaultfdUser: return 0;
    case MapperKind::kSignal: return signal::mappings_per_frame(signal::Movement::kRemap);
    case MapperKind::kCopy: return signal::mappings_per_frame(signal::Movement::kCopy);
  }
  return 0;
}

std::unique_ptr<FrameMapper> make_unchecked(MapperKind kind) {
  switch (kind) {
    case MapperKind::kUserfaultfd:
      return userfaultfd::make_mapper(userfaultfd::Scope::kUserAndKernel);
    case MapperKind::kUserfaultfdUser:
      return userfaultfd::make_mapper(userfaultfd::Scope::kUserOnly);
    case MapperKind::kSignal: return signal::make_mapper(signal::Movement::kRemap);
    case MapperKind::kCopy: return signal::make_mapper(signal::Movement::kCopy);
  }
  throw ConfigError("no mapper has the number {}", static_cast<int>(kind));
}

}  // namespace

std::optional<Bytes> pool_limit(MapperKind kind, std::uint64_t mappings_max) {
  const std::uint64_t per_frame = mappings_per_frame(kind);
  if (per_frame == 0) return std::nullopt;
  const std::uint64_t left = mappings_max - std::min(mappings_max, kMappingsOfOthers);
  return kPageSize * (left / per_frame);
}

std::string reason_against_pool(MapperKind kind, Bytes size, std::uint64_t mappings_max) {
  const auto limit = pool_limit(kind, mappings_max);
  if (!limit || size <= *limit) return {};
  const std::uint64_t needed = size / kPageSize * mappings_per_frame(kind) + kMappingsOfOthers;
  // No budget is as small as a single page.
  const std::string other =
      *limit <= kPageSize ? "" : message(", or give a budget of at most {}MiB", *limit / 1_MiB);
  return message("the mapper \"{}\" needs up to {} mappings for a budget of {}, and "
                 "vm.max_map_count is {}; run `sysctl vm.max_map_count={}`{}",
                 name_of(kind), needed, size, mappings_max, needed, other);
}

bool serves_system_calls(MapperKind kind) { return kind == MapperKind::kUserfaultfd; }

std::span<const Named<MapperKind>> mapper_kinds() { return kKinds; }

std::string_view name_of(MapperKind kind) { return name_in(kKinds, kind); }

MapperKind mapper_kind_from(std::string_view name) { return value_named(name, kKinds, "mapper"); }

MapperProbe probe_mapper(MapperKind kind) {
  try {
    try_mapper(make_unchecked(kind));
  } catch (const UnsupportedError& refusal) {
    return {kind, false, refusal.what()};
  }
  return {kind, true, {}};
}

std::vector<MapperProbe> probe_mappers() {
  std::vector<MapperProbe> probes;
  probes.reserve(kKinds.size());
  for (const auto& known : kKinds) probes.push_back(probe_mapper(known.value));
  return probes;
}

std::unique_ptr<FrameMapper> make_frame_mapper(MapperKind kind) {
  const MapperProbe found = probe_mapper(kind);
  if (!found.is_viable) throw UnsupportedError("mapper \"{}\": {}", name_of(kind), found.reason);
  return make_unchecked(kind);
}

void drop_page(std::byte* page) {
  // A page that is still locked (mlock) would refuse.
  raw_munlock(page, kPageBytes);
  discard(page, kPageBytes);
}

}  // namespace spillway::memory
