#include "page_owner.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include "spillway/base/assert.h"

namespace spillway::memory {

PageOwner::PageOwner(std::unique_ptr<FrameMapper> mapper, std::size_t pages, std::size_t slots)
    : mapper_(mapper.get()), pages_(pages), owned_mapper_(std::move(mapper)) {
  // The mapper's thread starts here, and reads under the mutex what is written under it.
  const std::lock_guard lock(mutex_);
  regions_ = mapper_->reserve(pages * kPageSize, slots * kPageSize, *this);
  mapper_->prepare(regions_.arena, pages);
  frames_ = HostFrameSource(regions_.pool);
  pool_.emplace(frames_, slots, slots);
  // Faults are noted inside a signal handler, which must not allocate.
  faults_.reserve(std::size_t{1} << 16);
  for (Page& page : pages_) page.slot = pool_->take_frame().value();
}

std::byte* PageOwner::frame(std::size_t index) {
  const std::lock_guard lock(mutex_);
  SPILLWAY_ASSERT(pages_[index].state == State::kOut);
  return frames_.address(pages_[index].slot);
}

void PageOwner::bring_in(std::size_t index, Access allowed) {
  const std::lock_guard lock(mutex_);
  bring_in_locked(pages_[index], page(index), allowed);
}

MoveResult PageOwner::move_out(std::size_t index) {
  const std::lock_guard lock(mutex_);
  Page& moved = pages_[index];
  if (moved.state == State::kOut) return MoveResult::kMoved;
  const SlotId slot = pool_->take_empty_slot();
  const MoveResult result = mapper_->unmap(frames_.address(slot), page(index));
  if (result == MoveResult::kMoved) {
    moved = {State::kOut, slot};
  } else {
    pool_->put_empty_slot(slot);
  }
  return result;
}

void PageOwner::close_page(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (pages_[index].state != State::kOpen) return;
  mapper_->forbid_writes(page(index), 1);
  pages_[index].state = State::kClosed;
}

void PageOwner::open_page(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (pages_[index].state != State::kClosed) return;
  mapper_->allow_writes(page(index), 1);
  pages_[index].state = State::kOpen;
}

void PageOwner::drop(std::size_t index) {
  const std::lock_guard lock(mutex_);
  drop_page(page(index));
  pool_->forget_frame();
  pages_[index] = {State::kOut, pool_->take_frame().value()};
}

void PageOwner::ask_before_serving(std::function<bool(Fault)> question) {
  const std::lock_guard lock(mutex_);
  question_ = std::move(question);
}

bool PageOwner::is_in(std::size_t index) {
  const std::lock_guard lock(mutex_);
  return pages_[index].state != State::kOut;
}

bool PageOwner::is_open(std::size_t index) {
  const std::lock_guard lock(mutex_);
  return pages_[index].state == State::kOpen;
}

std::vector<Fault> PageOwner::take_faults() {
  const std::lock_guard lock(mutex_);
  std::vector<Fault> taken = faults_;
  faults_.clear();
  return taken;
}

void PageOwner::begin_access(PageIndex index, Access access) {
  const std::function<bool(Fault)>* question = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (question_) question = &question_;
  }
  if (question != nullptr && !(*question)({index, access})) return;
  const std::lock_guard lock(mutex_);
  Page& faulted = pages_[index];
  if (faulted.state == State::kOut) {
    bring_in_locked(faulted, page(index), access);
  } else if (faulted.state == State::kClosed && access == Access::kWrite) {
    mapper_->allow_writes(page(index), 1);
    faulted.state = State::kOpen;
  } else {
    mapper_->wake(page(index));
    return;  // Reported late, or before.
  }
  if (faults_.size() < faults_.capacity()) faults_.push_back({index, access});
}

void PageOwner::bring_in_locked(Page& page, std::byte* address, Access allowed) {
  if (page.state != State::kOut) return;
  while (mapper_->map(address, frames_.address(page.slot), allowed) == MoveResult::kBusy) {
  }
  pool_->put_empty_slot(page.slot);
  page = {allowed == Access::kRead ? State::kClosed : State::kOpen, SlotId()};
}

std::size_t huge_bytes(const std::byte* begin, const std::byte* end) {
  std::ifstream smaps("/proc/self/smaps");
  std::size_t total = 0;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::size_t from = 0;
    std::size_t to = 0;
    std::size_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &from, &to) == 2) {
      inside = from >= reinterpret_cast<std::uintptr_t>(begin) &&
               to <= reinterpret_cast<std::uintptr_t>(end);
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %zu kB", &kilobytes) == 1) {
      total += kilobytes << 10;
    }
  }
  return total;
}

std::size_t mappings_between(const std::byte* begin, const std::byte* end) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    std::size_t from = 0;
    std::size_t to = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &from, &to) != 2) continue;
    const bool overlaps = from < reinterpret_cast<std::uintptr_t>(end) &&
                          to > reinterpret_cast<std::uintptr_t>(begin);
    count += overlaps ? 1 : 0;
  }
  return count;
}

}  // namespace spillway::memory
