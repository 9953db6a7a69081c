// Memory that ended storages leave to what comes behind their last uses. A program gives a device
// hundreds of operators ahead: without it, what those have freed would stand beside what later ones
// make, and live pages would leave for it.

#include <algorithm>
#include <utility>
#include <vector>

#include "engine_state.h"

namespace spillway::swap {

using memory::PageIndex;

namespace {

/// Whether nothing but work of the line stands between the ended storage and its next use.
bool is_left_to(const StorageTable& table, const Range& range, const void* line) {
  const Page* const first = table.pages_.get() + range.first;
  return range.late_line == line && range.in_flight == 0 && range.pages > 0 &&
         std::all_of(first, first + range.pages,
                     [](const Page& page) { return page.state == PageState::kResident; });
}

/// Storages that follow one another, with no gap between their addresses.
struct Run {
  PageIndex first;
  std::uint32_t pages;
};

std::optional<PageIndex> smallest_run(std::vector<Run> parts, std::uint32_t count) {
  std::sort(parts.begin(), parts.end(),
            [](const Run& a, const Run& b) { return a.first < b.first; });
  std::optional<Run> best;
  for (std::size_t i = 0; i < parts.size();) {
    Run run = parts[i++];
    for (; i < parts.size() && parts[i].first == run.first + run.pages; ++i)
      run.pages += parts[i].pages;
    if (run.pages >= count && (!best || run.pages < best->pages)) best = run;
  }
  return best ? std::optional(best->first) : std::nullopt;
}

/// Of the same size the latest one: others end sooner, and their frames can be filled then.
std::optional<PageIndex> same_size(const StorageTable& table, std::uint32_t count,
                                   const void* line) {
  for (auto id = table.ended_late_.rbegin(); id != table.ended_late_.rend(); ++id) {
    const Range& range = table.ranges_[id->slot()];
    if (range.pages == count && is_left_to(table, range, line)) return range.first;
  }
  return std::nullopt;
}

/// In the smallest piece of addresses that has so many pages or more.
std::optional<PageIndex> any_size(const StorageTable& table, std::uint32_t count,
                                  const void* line) {
  std::vector<Run> parts;
  for (const StorageId id : table.ended_late_) {
    const Range& range = table.ranges_[id.slot()];
    if (is_left_to(table, range, line)) parts.push_back({range.first, range.pages});
  }
  return smallest_run(std::move(parts), count);
}

}  // namespace

std::optional<SwapEngine::Allocation> SwapEngine::State::reuse(Bytes size, PinSet& within,
                                                               const void* line) {
  const auto count = static_cast<std::uint32_t>(std::min(pages_for(size), budget_pages_ + 1));
  if (access_ != nullptr) return std::nullopt;  // It would stay protected, or be written unseen.
  const Lock lock(mutex_);
  auto found = same_size(*this, count, line);
  if (!found && pool_->available_frames() < count + frames_wanted_)
    found = any_size(*this, count, line);
  if (!found) return std::nullopt;
  const PageIndex first = *found;
  for (const StorageId id : ended_late_) {
    Range& ended = range_of(id);
    if (ended.first < first || ended.first >= first + count) continue;
    const std::uint32_t taken = std::min(ended.pages, first + count - ended.first);
    ended.first += taken;
    ended.pages -= taken;
  }
  for (PageIndex index = first; index < first + count; ++index)
    drop_extent_locked(pages_.get()[index]);
  enter_locked(within);
  const Allocation made = hand_out_locked(first, count, size, &within);
  for (PageIndex index = first; index < first + count; ++index) {
    note_resident_locked(index, memory::Access::kWrite);
    pages_.get()[index].dirty = true;
  }
  take_kept_room_locked(count);
  note_counted_locked();
  return made;
}

}  // namespace spillway::swap
