#include "store/verifying/store.h"

#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "spillway/base/error.h"
#include "store/verifying/factory.h"

namespace spillway::swap {
namespace {

std::string hexadecimal(std::uint64_t sum) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(sum));
  return text.data();
}

}  // namespace

VerifyingStore::VerifyingStore(std::unique_ptr<SpillStore> child, std::string place)
    : SpillStore(child->facts()), child_(std::move(child)), place_(std::move(place)) {}

void VerifyingStore::do_submit(const Transfer& transfer) {
  if (transfer.direction == Direction::kWrite) {
    seals_.at(transfer.extent) = {XXH3_64bits(transfer.memory, transfer.size),
                                  static_cast<std::uint32_t>(transfer.size)};
    wrong_extents_.erase(transfer.extent);
  }
  child_->submit(transfer);
}

void VerifyingStore::do_reap(std::vector<TransferResult>& results,
                             std::chrono::milliseconds timeout) {
  const std::size_t before = results.size();
  child_->reap(results, timeout);
  for (std::size_t i = before; i < results.size(); ++i) {
    if (results[i].error == 0 && results[i].transfer.direction == Direction::kRead)
      check(results[i]);
  }
}

Seal VerifyingStore::seal_of(ExtentId extent) const {
  const Seal* const seal = seals_.find(extent);
  return seal == nullptr ? Seal{} : *seal;
}

void VerifyingStore::check(TransferResult& result) {
  const ExtentId extent = result.transfer.extent;
  checked_.fetch_add(1, std::memory_order_relaxed);
  if (!is_right(result, seal_of(extent), place_)) {
    if (wrong_extents_.insert(extent).second) wrong_.fetch_add(1, std::memory_order_relaxed);
  } else if (wrong_extents_.erase(extent) > 0) {
    wrong_.fetch_sub(1, std::memory_order_relaxed);
    recovered_.fetch_add(1, std::memory_order_relaxed);
  }
}

bool VerifyingStore::is_right(TransferResult& result, const Seal& seal, const std::string& place) {
  const Transfer& transfer = result.transfer;
  if (seal.size != transfer.size) {
    result.error = EINVAL;
    result.detail = message("extent {} of {} was written with {} bytes and read with {}",
                            transfer.extent, place, seal.size, transfer.size);
    return false;
  }
  const std::uint64_t sum = XXH3_64bits(transfer.memory, transfer.size);
  if (sum == seal.sum) return true;
  result.error = EBADMSG;
  result.detail = message("wrong bytes in extent {} of {}: checksum {} was written, {} came back",
                          transfer.extent, place, hexadecimal(seal.sum), hexadecimal(sum));
  return false;
}

StoreReport VerifyingStore::do_report() const {
  StoreReport report = child_->report();
  report.checked = checked_.load();
  report.wrong = wrong_.load();
  report.recovered = recovered_.load();
  return report;
}

ExtentPlace VerifyingStore::do_locate(ExtentId extent) const {
  ExtentPlace place = child_->locate(extent);
  const Seal seal = seal_of(extent);
  place.has_checksum = true;
  place.checksum = seal.sum;
  place.checked_size = seal.size;
  return place;
}

std::unique_ptr<SpillStore> make_verifying_store(std::unique_ptr<SpillStore> child,
                                                 std::string place) {
  return std::make_unique<VerifyingStore>(std::move(child), std::move(place));
}

}  // namespace spillway::swap
