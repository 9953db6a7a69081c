#include "support/page_patterns.h"

#include <cstring>
#include <utility>

#include "spillway/base/error.h"

namespace spillway::swap {
namespace {

constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(100);

std::uint64_t word_at(std::uint64_t pattern, std::size_t offset) {
  std::uint64_t word = pattern * 0x9e3779b97f4a7c15u + offset;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  return word ^ (word >> 27);
}

}  // namespace

void PatternPages::fill(std::size_t page, std::uint64_t pattern, std::size_t size) {
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = word_at(pattern, i);
    std::memcpy((*this)[page] + i, &word, sizeof word);
  }
}

bool PatternPages::holds(std::size_t page, std::uint64_t pattern, std::size_t size) const {
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = word_at(pattern, i);
    if (std::memcmp((*this)[page] + i, &word, sizeof word) != 0) return false;
  }
  return true;
}

DevicePatternPages::DevicePatternPages(std::shared_ptr<device::Device> device, std::size_t count)
    : device_(std::move(device)) {
  if (device_ == nullptr) return;
  memory_ = device_->allocate(Bytes(count * kExtentBytes));
  queue_ = device_->make_queue("test");
}

void DevicePatternPages::copy(device::DeviceSpan to, device::DeviceSpan from) const {
  queue_->copy(to, from);
  const device::Outcome outcome = queue_->record().wait();
  if (!outcome.succeeded()) throw Error("{}", outcome.error);
}

void DevicePatternPages::fill(std::size_t page, std::uint64_t pattern, std::size_t size) {
  host_.fill(0, pattern, size);
  copy(span_of(page, size), device::host_span(host_[0], Bytes(size)));
}

bool DevicePatternPages::holds(std::size_t page, std::uint64_t pattern, std::size_t size) const {
  copy(device::host_span(host_[0], Bytes(size)), span_of(page, size));
  return host_.holds(0, pattern, size);
}

std::vector<TransferResult> reap_all(SpillStore& store, std::size_t count) {
  std::vector<TransferResult> results;
  while (results.size() < count) {
    const std::size_t before = results.size();
    store.reap(results, kPatience);
    if (results.size() == before) break;
  }
  return results;
}

TransferResult carry_out(SpillStore& store, const Transfer& transfer) {
  store.submit(transfer);
  auto results = reap_all(store, 1);
  if (results.empty()) return {transfer, ETIMEDOUT, "no completion came"};
  return std::move(results.front());
}

}  // namespace spillway::swap
