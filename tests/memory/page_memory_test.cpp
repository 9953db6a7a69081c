// The memory of the host under each mapper, and that of a device which the host cannot touch.
#include "frame_mapper_conformance.h"
#include "page_memory_conformance.h"
#include "spillway/memory/host_pages.h"
#include "support/shadow_pages.h"

namespace spillway::memory {
namespace {

PageMemoryKind host_pages(MapperKind kind) {
  const auto objection = [kind]() -> std::string {
    for (const MapperProbe& probe : probe_mappers())
      if (probe.kind == kind && !probe.is_viable) return probe.reason;
    return {};
  };
  return {kind_name({kind, 0}), objection,
          [kind] {
            return PageMemoryUnderTest{make_host_pages(kind), nullptr};
          },
          is_ever_busy(kind)};
}

PageMemoryKind shadow_pages() {
  return {"Shadow", [] { return std::string(); },
          [] {
            auto device = std::make_shared<device::ShadowDevice>();
            return PageMemoryUnderTest{std::make_unique<ShadowPages>(device), device};
          }};
}

}  // namespace

std::vector<PageMemoryKind> page_memory_kinds() {
  using enum MapperKind;
  return {host_pages(kUserfaultfd), host_pages(kUserfaultfdUser), host_pages(kSignal),
          host_pages(kCopy), shadow_pages()};
}

}  // namespace spillway::memory
