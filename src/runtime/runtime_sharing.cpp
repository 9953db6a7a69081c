// Storages that are smaller than pages and share them.

#include <algorithm>

#include "runtime_parts.h"
#include "shared_pages.h"

namespace spillway::runtime {

namespace {

bool is_among(const std::vector<StorageId>& pages, StorageId page) {
  return std::find(pages.begin(), pages.end(), page) != pages.end();
}

}  // namespace

bool Runtime::is_shared(StorageId storage) const noexcept { return shared_->has(storage); }

RangeUse Runtime::find_unshared(const void* memory) const noexcept {
  const RangeUse found = find(memory);
  return is_shared(found.storage) ? RangeUse{} : found;
}

Bytes Runtime::unlisted_peak() const { return engine_->statistics().small_peak + shared_peak(); }

Bytes Runtime::shared_peak() const { return page_size_ * shared_->most_pages(); }

/// Where small storages take more than a share of all that lives, plans of this run are to know of
/// them. It costs each operator on them what one on large storages pays, so only once something has
/// to leave. Not in profiles: storages that a step makes anew lie where others have ended, so a
/// page that lives on holds others in each step, and a stored plan would find no step like its own.
void Runtime::consider_learning_shared() {
  constexpr std::uint64_t kShare = 16;
  const bool may_learn = guide_ != nullptr && !records() && options_.planning.stored == nullptr;
  if (!may_learn || learns_shared_ || !engine_->is_under_pressure()) return;
  if (shared_peak() * kShare >= engine_->statistics().live_peak) learns_shared_.store(true);
}

void* Runtime::allocate_shared(std::size_t size, OpContext& op) {
  const bool is_told = guide_ != nullptr && learns_shared_ && !op.replays;
  SharedPages::Block block;
  with_room(op, 1, [&] {
    block = shared_->allocate(size, op.is_running ? &op.pins : nullptr, op.shared);
  });
  note_success(op);
  if (is_told && block.is_new) guide_->allocated_shared(trainer_of(op), block.page);
  if (is_told && block.is_first && !block.is_new) guide_->use_shared(trainer_of(op), block.page);
  if (block.is_new) consider_learning_shared();
  if (!op.is_running || !block.is_first) return block.address;
  op.shared.push_back(block.page);
  if (!is_among(op.shared_inputs, block.page)) {
    op.inside_pages += 1;
    op.inside_peak = std::max(op.inside_peak, op.inside_pages);
    note_need(op);
  }
  return block.address;
}

void Runtime::release_shared(OpContext& op, void* memory, StorageId page) {
  const auto before_end = [&] {
    if (guide_ != nullptr && learns_shared_) guide_->freed(page);
  };
  const bool fetches_next = guide_ == nullptr || !learns_shared_ || !guide_->follows_plan();
  if (!shared_->release(memory, page, before_end, fetches_next) || !op.is_running) return;
  const auto born = std::find(op.shared.begin(), op.shared.end(), page);
  if (born == op.shared.end()) return;
  if (!is_among(op.shared_inputs, page)) op.inside_pages -= 1;
  *born = op.shared.back();
  op.shared.pop_back();
}

/// Pages that plans may use. Shared pages that they do not know of take part of the budget beside
/// them: all that they have while that leaves half of it, or the largest operator, to others.
std::uint32_t Runtime::room_for_plans() const {
  const std::uint32_t all = engine_->storage_pages();
  if (learns_shared_) return all;
  // With the page to spare that smallest budgets have.
  const std::uint64_t largest = largest_need_pages_.load(std::memory_order_relaxed) + 1;
  const auto least = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(all, std::max<std::uint64_t>(all / 2, largest)));
  return std::max(all - std::min(all, shared_->pages()), least);
}

}  // namespace spillway::runtime
