#include "store/tiered/store.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "store/tiered/factory.h"

namespace spillway::swap {
namespace {

// Of the slabs, for pages on their way past host memory; and never more than the queue takes.
constexpr std::uint32_t kStagingPart = 4;

std::uint32_t count_staging_slabs(const device::Device& device, const device::HostSlabs& slabs,
                                  std::size_t depth) {
  if (device.id().is_host()) return 0;
  SPILLWAY_ASSERT(slabs.count() > 1);
  const std::uint32_t part = std::max(1U, slabs.count() / kStagingPart);
  return std::min(part, static_cast<std::uint32_t>(depth));
}

StoreFacts facts_before(const SpillStore& lower, const device::Device& device, HostExtents* host) {
  StoreFacts facts = lower.facts();
  facts.device = device.id();
  facts.host = host;
  return facts;
}

// Of the slabs, kept free for what is written next; and never more than the queue takes.
constexpr std::size_t kSparePart = 8;

// A place is one word, so that a forked child finds a whole one. Slabs are aligned to blocks, so
// the low bits of their addresses are free.
constexpr std::uint64_t kInSlab = 1;
constexpr std::uint64_t kInLower = 2;
constexpr std::uint64_t kPlaceBits = kTransferAlignment;

std::uint64_t place_in_slab(const device::HostSlab& slab) {
  return reinterpret_cast<std::uint64_t>(slab.span().data) | kInSlab;
}

/// Tags of the caller may be those of other transfers by then.
Transfer seen_by_disks(Transfer transfer, std::size_t tag) {
  transfer.tag = tag;
  return transfer;
}

std::uint64_t place_in_lower(ExtentId extent) { return extent.value() * kPlaceBits | kInLower; }

}  // namespace

TieredStore::TieredStore(std::shared_ptr<device::Device> device,
                         std::unique_ptr<device::HostSlabs> slabs,
                         std::unique_ptr<SpillStore> lower, std::shared_ptr<Notifier> notifier,
                         DiskObserver* disks, std::unique_ptr<DirectTransfers> direct)
    : SpillStore(facts_before(*lower, *device, this)),
      device_(std::move(device)),
      slabs_(std::move(slabs)),
      wait_(notifier),
      notifier_(std::move(notifier)),
      disks_(disks),
      staging_slabs_(count_staging_slabs(*device_, *slabs_, queue_depth())),
      spare_slabs_(std::min<std::size_t>(this->slabs() / kSparePart, queue_depth())),
      lower_jobs_(queue_depth()),
      lower_(std::move(lower)),
      direct_(std::move(direct)) {
  SPILLWAY_ASSERT(slabs_->slab_size() == extent_size());
  for (std::size_t i = queue_depth(); i > 0; --i) idle_.push_back(i - 1);
  for (std::uint32_t i = 0; i < staging_slabs_; ++i)
    staging_.push_back(std::make_shared<device::HostSlab>(std::move(*slabs_->take())));
  lanes_[0].queue = device_->make_queue("spillway-out");
  lanes_[1].queue = device_->make_queue("spillway-in");
  // A thread of the host tells faster than it wakes another one.
  if (device_->id().is_host()) return;
  for (Lane& lane : lanes_) lane.ends = device_->make_queue("spillway-ends");
}

// --- Extents ----------------------------------------------------------------------------------

std::optional<ExtentId> TieredStore::do_reserve_extent(StoreTier tier) {
  const std::lock_guard lock(mutex_);
  Held held;
  held.tier = tier;
  ExtentId extent;
  if (find_place_locked(held)) {
    extent = new_extent_locked();
    held_[extent.value()] = std::move(held);
    settle_locked(extent);
  } else if (!released_.empty()) {
    // Its slab and its place in the lower store are both taken until the demotion has ended, and
    // one of them is enough.
    extent = released_.back();
    released_.pop_back();
    Held& again = held_[extent.value()];
    again.is_released = false;
    again.is_renewed = true;
    again.tier = tier;
  }
  totals_.was_refused = !extent.is_some();
  if (!extent.is_some()) return std::nullopt;
  totals_.most_in_use = std::max(totals_.most_in_use, ++totals_.in_use);
  return extent;
}

bool TieredStore::find_place_locked(Held& held) {
  std::optional<device::HostSlab> slab;
  if (held.tier != StoreTier::kFar) slab = slabs_->take();
  if (!slab) {
    if (const auto lower = lower_->reserve_extent(held.tier)) {
      held.lower = *lower;
      return true;
    }
    slab = slabs_->take();
  }
  if (!slab) return false;
  held.slab = std::make_shared<device::HostSlab>(std::move(*slab));
  totals_.slabs_peak = std::max<std::uint64_t>(totals_.slabs_peak, slabs() - slabs_->available());
  return true;
}

ExtentId TieredStore::new_extent_locked() {
  if (free_.empty()) {
    held_.emplace_back();
    return ExtentId(static_cast<std::uint32_t>(held_.size() - 1));
  }
  const ExtentId extent = free_.back();
  free_.pop_back();
  return extent;
}

/// Tells forked children where the extent lies.
void TieredStore::settle_locked(ExtentId extent) {
  const Held& held = held_[extent.value()];
  const std::uint64_t place =
      held.slab != nullptr ? place_in_slab(*held.slab) : place_in_lower(held.lower);
  places_.at(extent).store(place, std::memory_order_release);
}

void TieredStore::do_release_extent(ExtentId extent) {
  const std::lock_guard lock(mutex_);
  Held& held = held_[extent.value()];
  SPILLWAY_ASSERT(totals_.in_use > 0 && !held.is_released);
  --totals_.in_use;
  if (held.is_demoting) {
    held.is_released = true;
    held.is_renewed = false;
    released_.push_back(extent);
  } else {
    free_locked(extent);
  }
}

void TieredStore::free_locked(ExtentId extent) {
  Held& held = held_[extent.value()];
  if (held.age != 0) demotable_.erase(held.age);
  if (held.lower.is_some()) {
    lower_->release_extent(held.lower);
    is_lower_full_ = false;
  }
  held = {};
  free_.push_back(extent);
}

ExtentPlace TieredStore::do_locate(ExtentId extent) const {
  const std::atomic<std::uint64_t>* const entry = places_.find(extent);
  SPILLWAY_ASSERT(entry != nullptr);
  const std::uint64_t place = entry->load(std::memory_order_acquire);
  if ((place & kInLower) != 0)
    return lower_->locate(ExtentId(static_cast<std::uint32_t>(place / kPlaceBits)));
  ExtentPlace in_memory;
  in_memory.memory = reinterpret_cast<const std::byte*>(place & ~kInSlab);
  return in_memory;
}

// --- Extents that the host works on -----------------------------------------------------------

HostExtents::Place TieredStore::place_of(ExtentId extent) const {
  const std::lock_guard lock(mutex_);
  const Held& held = held_[extent.value()];
  if (held.slab == nullptr) return Place::kElsewhere;
  return held.is_demoting ? Place::kLeaving : Place::kThere;
}

std::byte* TieredStore::hold(ExtentId extent, std::size_t size) {
  const std::lock_guard lock(mutex_);
  Held& held = held_[extent.value()];
  if (held.slab == nullptr || held.is_demoting) return nullptr;
  if (held.age != 0) demotable_.erase(std::exchange(held.age, 0));
  held.size = size;
  return held.slab->span().data;
}

void TieredStore::let_go(ExtentId extent) {
  const std::lock_guard lock(mutex_);
  Held& held = held_[extent.value()];
  if (held.slab == nullptr || held.is_demoting || held.age != 0) return;
  held.tier = StoreTier::kAny;
  held.age = ++latest_age_;
  demotable_.emplace(held.age, extent);
}

bool TieredStore::is_making_room() const {
  const std::lock_guard lock(mutex_);
  if (demoting_ > 0) return true;
  return spare_slabs_ > 0 && !demotable_.empty() && !is_lower_full_ && demotion_failure_.empty();
}

// --- Transfers --------------------------------------------------------------------------------

void TieredStore::do_submit(const Transfer& transfer) {
  std::unique_lock lock(mutex_);
  Held& held = held_[transfer.extent.value()];
  SPILLWAY_ASSERT(held.slab != nullptr || held.lower.is_some());
  const bool is_write = transfer.direction == Direction::kWrite;
  if (is_write && held.is_demoting) {
    deferred_.push_back(transfer);
    return;
  }
  if (held.slab == nullptr) {
    backlog_.push_back({way_to_lower(transfer, held.lower), transfer, held.lower});
    lock.unlock();
    advance_lower();
    return;
  }
  if (is_write) {
    if (held.age != 0) demotable_.erase(std::exchange(held.age, 0));
    held.size = transfer.size;
  }
  SharedSlab slab = held.slab;
  lock.unlock();
  start_copy(transfer, std::move(slab));
}

/// `lower`: the page is only staged there, on its way to or from that extent.
void TieredStore::start_copy(const Transfer& transfer, SharedSlab slab, ExtentId lower) {
  Lane& lane = lanes_[static_cast<std::size_t>(transfer.direction)];
  const device::DeviceSpan page{device_->id(), transfer.memory, Bytes(transfer.size)};
  const device::DeviceSpan place = slab->span().first(page.size);
  const bool is_write = transfer.direction == Direction::kWrite;
  lane.queue->copy(is_write ? place : page, is_write ? page : place);
  lane.jobs.push_back({transfer, std::move(slab), lane.queue->record(), lower});
  device::Queue& ends = lane.ends != nullptr ? *lane.ends : *lane.queue;
  ends.wait(lane.jobs.back().done);
  ends.run([notifier = notifier_] {
    notifier->notify();
    return device::Outcome{};
  });
}

TieredStore::LowerKind TieredStore::way_to_lower(const Transfer& transfer, ExtentId lower) const {
  if (staging_slabs_ == 0 || transfer.is_into_host) return LowerKind::kStraight;
  const bool is_direct =
      direct_ != nullptr && !is_direct_broken_ && direct_->reaches(lower_->locate(lower));
  return is_direct ? LowerKind::kByDevice : LowerKind::kStaged;
}

/// Goes on with what is for the lower store, in order, as far as its queue and slabs go.
void TieredStore::advance_lower() {
  for (; !copied_.empty() && !idle_.empty(); copied_.pop_front())
    give_to_lower(std::move(copied_.front()));
  while (!backlog_.empty() && start_lower(backlog_.front())) backlog_.pop_front();
}

bool TieredStore::start_lower(LowerJob& job) {
  const bool is_staged = job.kind == LowerKind::kStaged;
  const bool copies_first = is_staged && job.transfer.direction == Direction::kWrite;
  if ((is_staged && staging_.empty()) || (!copies_first && idle_.empty())) return false;
  if (is_staged) {
    job.slab = std::move(staging_.back());
    staging_.pop_back();
  }
  if (copies_first)
    start_copy(job.transfer, std::move(job.slab), job.lower);
  else
    give_to_lower(std::move(job));
  return true;
}

void TieredStore::give_to_lower(LowerJob job) {
  const std::size_t index = idle_.back();
  idle_.pop_back();
  Transfer sent = job.transfer;
  sent.extent = job.lower;
  sent.tag = index;
  if (job.slab != nullptr) sent.memory = job.slab->span().data;
  if (disks_ != nullptr) disks_->begin_disk_transfer(seen_by_disks(job.transfer, index));
  const bool is_direct = job.kind == LowerKind::kByDevice;
  lower_jobs_[index] = std::move(job);
  if (is_direct)
    direct_->submit(sent, lower_->locate(sent.extent));
  else
    lower_->submit(sent);
}

void TieredStore::do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) {
  wait_.until_finished(results, timeout,
                       [this](std::vector<TransferResult>& out) { collect(out); });
}

void TieredStore::collect(std::vector<TransferResult>& results) {
  for (Lane& lane : lanes_) finish_copies(lane, results);
  finish_lower(results);
  advance_lower();
  start_demotions();
}

void TieredStore::finish_copies(Lane& lane, std::vector<TransferResult>& results) {
  while (!lane.jobs.empty() && lane.jobs.front().done.is_done()) {
    finish_copy(lane.jobs.front(), results);
    lane.jobs.pop_front();
  }
}

void TieredStore::finish_copy(const CopyJob& job, std::vector<TransferResult>& results) {
  const std::string failure = job.done.wait().error;
  if (!failure.empty()) {
    if (job.lower.is_some()) staging_.push_back(job.slab);
    results.push_back(
        {job.transfer, EIO,
         message("a copy between {} and host memory failed: {}", device_->id(), failure)});
  } else if (job.lower.is_some()) {
    finish_staged_copy(job, results);
  } else {
    note_copy(job.transfer);
    results.push_back({job.transfer, 0, {}});
  }
}

void TieredStore::finish_staged_copy(const CopyJob& job, std::vector<TransferResult>& results) {
  if (job.transfer.direction == Direction::kWrite) {
    copied_.push_back({LowerKind::kStaged, job.transfer, job.lower, job.slab});
    return;
  }
  staging_.push_back(job.slab);
  results.push_back({job.transfer, 0, {}});
}

void TieredStore::note_copy(const Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  if (transfer.direction == Direction::kRead) {
    totals_.read += transfer.size;
    return;
  }
  totals_.written += transfer.size;
  Held& held = held_[transfer.extent.value()];
  if (held.tier == StoreTier::kHost) return;
  held.age = ++latest_age_;
  demotable_.emplace(held.age, transfer.extent);
}

void TieredStore::finish_lower(std::vector<TransferResult>& results) {
  scratch_.clear();
  lower_->reap(scratch_, std::chrono::milliseconds(0));
  if (direct_ != nullptr) direct_->collect(scratch_);
  for (TransferResult& result : scratch_) {
    const std::size_t index = result.transfer.tag;
    LowerJob job = std::exchange(lower_jobs_[index], {});
    idle_.push_back(index);
    if (disks_ != nullptr)
      disks_->end_disk_transfer({seen_by_disks(job.transfer, index), result.error, result.detail});
    const bool is_staged = job.kind == LowerKind::kStaged;
    if (job.kind == LowerKind::kDemotion) {
      finish_demotion(job, result);
    } else if (job.kind == LowerKind::kByDevice) {
      finish_by_device(std::move(job), result, results);
    } else if (is_staged && job.transfer.direction == Direction::kRead && result.error == 0) {
      start_copy(job.transfer, std::move(job.slab), job.lower);
    } else {
      if (is_staged) staging_.push_back(std::move(job.slab));
      results.push_back({job.transfer, result.error, std::move(result.detail)});
    }
  }
}

/// What the device could not move goes by way of host memory: its page is as it was, or not yet
/// anybody's.
void TieredStore::finish_by_device(LowerJob job, TransferResult& result,
                                   std::vector<TransferResult>& results) {
  if (result.error == 0) {
    const std::lock_guard lock(mutex_);
    const bool is_write = job.transfer.direction == Direction::kWrite;
    (is_write ? totals_.directly_written : totals_.directly_read) += job.transfer.size;
    results.push_back({job.transfer, 0, {}});
    return;
  }
  if (!std::exchange(is_direct_broken_, true))
    log_warning("{} no longer reads and writes its spill files itself, and pages go through host "
                "memory: {}",
                device_->id(), result.detail);
  job.kind = LowerKind::kStaged;
  backlog_.push_back(std::move(job));
}

// --- Demotions --------------------------------------------------------------------------------

void TieredStore::start_demotions() {
  const std::size_t most = std::max<std::size_t>(1, queue_depth() / 2);
  while (backlog_.empty() && copied_.empty() && !idle_.empty() && demoting_ < most) {
    auto job = next_demotion();
    if (!job) return;
    ++demoting_;
    give_to_lower(std::move(*job));
  }
}

std::optional<TieredStore::LowerJob> TieredStore::next_demotion() {
  const std::lock_guard lock(mutex_);
  if (demotable_.empty() || is_lower_full_ || !demotion_failure_.empty()) return std::nullopt;
  if (slabs_->available() + demoting_ >= spare_slabs_) return std::nullopt;
  const auto lower = lower_->reserve_extent(StoreTier::kFar);
  if (!lower) {
    is_lower_full_ = true;
    return std::nullopt;
  }
  const ExtentId extent = demotable_.begin()->second;
  demotable_.erase(demotable_.begin());
  Held& held = held_[extent.value()];
  held.age = 0;
  held.is_demoting = true;
  LowerJob job;
  job.kind = LowerKind::kDemotion;
  job.transfer.direction = Direction::kWrite;
  job.transfer.extent = extent;
  job.transfer.size = held.size;
  job.slab = held.slab;
  job.lower = *lower;
  return job;
}

/// The bytes leave the slab only once the lower store has them. What failed stays, and is read from
/// there: nobody has to be told but who asks for more room than there is.
void TieredStore::finish_demotion(const LowerJob& job, const TransferResult& result) {
  --demoting_;
  const ExtentId extent = job.transfer.extent;
  {
    const std::lock_guard lock(mutex_);
    Held& held = held_[extent.value()];
    held.is_demoting = false;
    const bool arrived = result.error == 0 && !held.is_released && !held.is_renewed;
    if (result.error != 0) demotion_failure_ = result.detail;
    if (arrived) {
      held.lower = job.lower;
      held.slab.reset();  // The job has it until forked children are told where to look.
      settle_locked(extent);
      totals_.demoted += job.transfer.size;
    } else {
      lower_->release_extent(job.lower);
      is_lower_full_ = false;
    }
    held.is_renewed = false;
    if (std::erase(released_, extent) > 0) free_locked(extent);
  }
  const auto is_ready = [extent](const Transfer& each) { return each.extent == extent; };
  const auto found = std::find_if(deferred_.begin(), deferred_.end(), is_ready);
  if (found == deferred_.end()) return;
  const Transfer transfer = *found;
  deferred_.erase(found);
  do_submit(transfer);
}

StoreReport TieredStore::do_report() const {
  const StoreReport lower = lower_->report();
  StoreReport report = tally();
  report.retries = lower.retries;
  report.checked = lower.checked;
  report.wrong = lower.wrong;
  report.recovered = lower.recovered;
  const std::lock_guard lock(mutex_);
  report.extents_in_use = extent_size() * totals_.in_use;
  report.extents_peak = extent_size() * totals_.most_in_use;
  report.host.capacity = slabs_->slab_size() * slabs();
  if (lower.capacity > Bytes()) report.capacity = report.host.capacity + lower.capacity;
  report.host.in_use = slabs_->slab_size() * (slabs() - slabs_->available());
  report.host.peak = slabs_->slab_size() * totals_.slabs_peak;
  report.host.written = Bytes(totals_.written);
  report.host.read = Bytes(totals_.read);
  report.host.demoted = Bytes(totals_.demoted);
  report.directly_written = Bytes(totals_.directly_written);
  report.directly_read = Bytes(totals_.directly_read);
  if (!totals_.was_refused) return report;
  report.refusal = lower.refusal.empty() ? demotion_failure_ : lower.refusal;
  report.refusal +=
      message("{}the {} of host memory before it are full", report.refusal.empty() ? "" : "; ",
              slabs_->slab_size() * slabs_->count());  // As it was given.
  return report;
}

std::unique_ptr<SpillStore> make_tiered_store(std::shared_ptr<device::Device> device,
                                              std::unique_ptr<device::HostSlabs> slabs,
                                              std::unique_ptr<SpillStore> lower,
                                              std::shared_ptr<Notifier> notifier,
                                              DiskObserver* disks,
                                              std::unique_ptr<DirectTransfers> direct) {
  return std::make_unique<TieredStore>(std::move(device), std::move(slabs), std::move(lower),
                                       std::move(notifier), disks, std::move(direct));
}

}  // namespace spillway::swap
