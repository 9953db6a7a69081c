#include "support/held_page.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/memory/host_pages.h"
#include "store/ram/factory.h"
#include "support/forwarding_store.h"

namespace spillway::swap {
namespace {

using memory::kPageSize;

constexpr std::size_t kBudgetPages = 4;

std::uint64_t word_at(const std::byte* memory) {
  return *reinterpret_cast<const volatile std::uint64_t*>(memory);
}

class HeldReadStore final : public ForwardingStore {
 public:
  HeldReadStore(std::unique_ptr<SpillStore> child, HeldPage::FirstRead& first)
      : ForwardingStore(std::move(child)), first_(first) {}

 private:
  void do_submit(const Transfer& transfer) override {
    if (transfer.direction == Direction::kRead && !first_.has_come) {
      held_ = transfer;
      first_.has_come = true;
    } else {
      child_->submit(transfer);
    }
  }
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds timeout) override {
    if (held_ && first_.may_go) child_->submit(*std::exchange(held_, std::nullopt));
    child_->reap(results, std::min(timeout, std::chrono::milliseconds(5)));
  }

  HeldPage::FirstRead& first_;
  std::optional<Transfer> held_;
};

}  // namespace

HeldPage::HeldPage(memory::MapperKind mapper) {
  SwapEngineOptions options;
  options.budget = kPageSize * kBudgetPages;
  options.arena_size = 1_GiB;
  auto store = make_ram_store(Bytes(64 * kExtentBytes), 4, std::make_shared<Notifier>());
  engine_ = std::make_unique<SwapEngine>(
      options, memory::make_host_pages(mapper),
      std::make_unique<HeldReadStore>(std::move(store), first_read_), clock_);
  held_ = engine_->allocate(kPageSize, nullptr).address;
  free_ = engine_->allocate(kPageSize, nullptr).address;
  *reinterpret_cast<std::uint64_t*>(held_) = kHeldWord;
  *reinterpret_cast<std::uint64_t*>(free_) = kFreeWord;
  engine_->allocate(kPageSize * kBudgetPages, nullptr);  // Both leave.
}

HeldPage::~HeldPage() { let_go(); }

std::uint64_t HeldPage::read_held() const { return word_at(held_); }

std::uint64_t HeldPage::read_free() const { return word_at(free_); }

void HeldPage::await_access() {
  while (!first_read_.has_come) std::this_thread::yield();
}

void HeldPage::let_go() { first_read_.may_go = true; }

}  // namespace spillway::swap
