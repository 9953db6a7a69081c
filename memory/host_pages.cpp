#include "spillway/memory/host_pages.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "child_faults.h"
#include "raw_calls.h"
#include "sealed_pages.h"

namespace spillway::memory {
namespace {

class HostPages final : public PageMemory, public AccessControl, public InheritedPages {
 public:
  explicit HostPages(std::unique_ptr<FrameMapper> mapper)
      : PageMemory(device::DeviceId(), kPageSize), mapper_(std::move(mapper)) {}

  void make_frame(SlotId slot) override { frames_.make_frame(slot); }
  void drop_frame(SlotId slot) override { frames_.drop_frame(slot); }

  using PageMemory::span_of;
  device::DeviceSpan span_of(SlotId slot) override {
    return device::host_span(frames_.address(slot), kPageSize);
  }

  void prepare(PageIndex first, std::uint32_t pages) override {
    mapper_->prepare(address_of(first), pages);
  }

  void map(PageIndex page, SlotId slot, Access allowed) override {
    std::byte* const frame = frames_.address(slot);
    while (mapper_->map(address_of(page), frame, allowed) == MoveResult::kBusy) {
      // A fork shares the frame with a child; writing to it makes it ours alone again.
      auto* bytes = reinterpret_cast<volatile std::byte*>(frame);
      for (std::size_t at = 0; at < kPageBytes; at += 4096) bytes[at] = bytes[at];
    }
  }

  MoveResult unmap(SlotId slot, PageIndex page) override {
    return mapper_->unmap(frames_.address(slot), address_of(page));
  }

  void copy(SlotId slot, PageIndex page) override {
    std::memcpy(frames_.address(slot), address_of(page), kPageBytes);
  }
  void drop(PageIndex page) override { drop_page(address_of(page)); }

  AccessControl* access_control() override { return this; }
  void forbid_writes(PageIndex first, std::uint32_t pages) override {
    mapper_->forbid_writes(address_of(first), pages);
  }
  void allow_writes(PageIndex first, std::uint32_t pages) override {
    mapper_->allow_writes(address_of(first), pages);
  }
  void wake(PageIndex page) override { mapper_->wake(address_of(page)); }

  InheritedPages* inherited_pages() override { return this; }
  void seal(PageIndex first, std::uint32_t pages) override { seal_pages(address_of(first), pages); }
  void make_writable(PageIndex first, std::uint32_t pages) override {
    make_pages_writable(address_of(first), pages);
  }
  bool show_file(PageIndex page, int file, std::uint64_t offset) override {
    constexpr int kFlags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
    return raw_mmap(address_of(page), kPageBytes, PROT_READ | PROT_WRITE, kFlags, file, offset) !=
           nullptr;
  }
  std::byte* stage() override { return stage_page(); }
  bool place(PageIndex page, std::byte* staged) override {
    return place_page(address_of(page), staged);
  }
  void report_accesses(void (*cannot_read)()) override {
    report_in_child({address_of(0), pages_ * kPageBytes, sink_, cannot_read});
  }

 private:
  std::byte* do_reserve(std::size_t pages, std::size_t frames, AccessSink& sink) override {
    sink_ = &sink;
    pages_ = pages;
    const auto regions = mapper_->reserve(kPageSize * pages, kPageSize * frames, sink);
    frames_ = HostFrameSource(regions.pool);
    return regions.arena;
  }

  std::byte* address_of(PageIndex page) const { return span_of(page).data; }

  AccessSink* sink_ = nullptr;
  std::size_t pages_ = 0;
  HostFrameSource frames_;
  std::unique_ptr<FrameMapper> mapper_;  ///< Last: it may report until its end.
};

}  // namespace

void HostFrameSource::make_frame(SlotId slot) { populate(address(slot), kPageBytes); }

void HostFrameSource::drop_frame(SlotId slot) { discard(address(slot), kPageBytes); }

std::unique_ptr<PageMemory> make_host_pages(std::unique_ptr<FrameMapper> mapper) {
  return std::make_unique<HostPages>(std::move(mapper));
}

std::unique_ptr<PageMemory> make_host_pages(MapperKind kind) {
  return make_host_pages(make_frame_mapper(kind));
}

}  // namespace spillway::memory
