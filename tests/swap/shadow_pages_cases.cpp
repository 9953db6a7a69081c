// The engine's suite on the host's pages, and on those of a device that the host cannot touch.
#include "pages_cases.h"
#include "support/shadow_pages.h"

namespace spillway::swap {

std::vector<PagesCase> all_pages() {
  using enum memory::MapperKind;
  return {kUserfaultfd, kUserfaultfdUser, kSignal, kCopy, std::nullopt};
}

std::string why_no_device() { return {}; }

std::shared_ptr<device::Device> open_paged_device() {
  return std::make_shared<device::ShadowDevice>();
}

std::unique_ptr<memory::PageMemory> pages_of(const std::shared_ptr<device::Device>& device) {
  return std::make_unique<memory::ShadowPages>(
      std::dynamic_pointer_cast<device::ShadowDevice>(device));
}

}  // namespace spillway::swap
