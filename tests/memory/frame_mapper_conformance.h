#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "page_owner.h"
#include "spillway/memory/frame_mapper.h"

namespace spillway::memory {

/// What every kind of mapper must do. A kind that this machine does not offer is skipped with the
/// reason that its probe gives.
class FrameMapperConformance : public ::testing::TestWithParam<MapperKind> {
 protected:
  void SetUp() override {
    for (const MapperProbe& probe : probe_mappers()) {
      if (probe.kind == GetParam() && !probe.is_viable) GTEST_SKIP() << probe.reason;
    }
  }

  /// Pages with their first and last byte set to their number, all out.
  std::unique_ptr<PageOwner> make_owner(std::size_t pages, std::size_t spare_slots = 1) {
    auto owner =
        std::make_unique<PageOwner>(make_frame_mapper(GetParam()), pages, pages + spare_slots);
    for (std::size_t i = 0; i < pages; ++i) {
      owner->frame(i)[0] = std::byte(i);
      owner->frame(i)[kPageBytes - 1] = std::byte(i);
    }
    return owner;
  }
};

inline std::string kind_name(const ::testing::TestParamInfo<MapperKind>& info) {
  switch (info.param) {
    case MapperKind::kUserfaultfd: return "Userfaultfd";
    case MapperKind::kUserfaultfdUser: return "UserfaultfdUser";
    case MapperKind::kSignal: return "Signal";
    case MapperKind::kCopy: return "Copy";
  }
  return "Unknown";
}

/// Whether the kernel may refuse to move a frame of this kind.
inline bool is_ever_busy(MapperKind kind) {
  return kind == MapperKind::kUserfaultfd || kind == MapperKind::kUserfaultfdUser;
}

/// Atomic, because the order between an access and the fault that it causes is the kernel's, and
/// the compiler must neither drop nor repeat it.
inline unsigned read_byte(const std::byte* address) {
  return __atomic_load_n(reinterpret_cast<const unsigned char*>(address), __ATOMIC_RELAXED);
}
inline void write_byte(std::byte* address, unsigned value) {
  __atomic_store_n(reinterpret_cast<unsigned char*>(address), static_cast<unsigned char>(value),
                   __ATOMIC_RELAXED);
}

}  // namespace spillway::memory
