#include "support/page_patterns.h"

#include <cstring>

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
