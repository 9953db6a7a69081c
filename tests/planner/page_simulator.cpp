#include "page_simulator.h"

#include <algorithm>

namespace spillway::planner {
namespace {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;
using profile::TapeOp;
using profile::TapeValue;

constexpr std::size_t kMostFaults = 5;

struct Page {
  bool is_resident = true;
  bool has_copy = false;
};

class PageSimulator {
 public:
  PageSimulator(const StepTape& tape, const SwapPlan& plan, std::uint32_t budget)
      : tape_(tape), plan_(plan), budget_(budget), storages_(tape.values.size()) {}

  PageReport run() {
    const auto op_count = static_cast<std::uint32_t>(tape_.ops.size());
    std::uint32_t longest = 0;
    for (const PlannedSwap& swap : plan_.swaps) longest = std::max(longest, swap.out_ops);
    const std::uint32_t settling = longest / op_count + 3;
    for (ValueIndex i = 0; i < storages_.size(); ++i) {
      if (tape_.values[i].birth == kCarriedIn) storages_[i].resize(tape_.values[i].pages);
    }
    for (std::uint32_t period = 0; period <= settling; ++period) {
      is_settled_ = period == settling;
      report_.written_pages = report_.read_pages = 0;
      for (OpIndex op = 0; op < op_count; ++op) run_op(op);
      renumber();
    }
    for (const PlannedSwap& swap : plan_.swaps) follow(swap);
    return report_;
  }

 private:
  void fault(const std::string& text, std::size_t op, std::size_t value) {
    if (report_.faults.size() >= kMostFaults) return;
    report_.faults.push_back(text + ": operator " + std::to_string(op) + ", value " +
                             std::to_string(value));
  }

  void run_op(OpIndex op) {
    const TapeOp& entry = tape_.ops[op];
    for (std::uint32_t i = plan_.fetches.first[op]; i < plan_.fetches.first[op + 1]; ++i)
      fetch(op, plan_.swaps[plan_.fetches.entries[i]].fetch_value);
    std::uint64_t held = entry.inside_peak_pages;
    for (const auto& pages : storages_) {
      held += static_cast<std::uint64_t>(
          std::count_if(pages.begin(), pages.end(), [](Page page) { return page.is_resident; }));
    }
    if (is_settled_ && held > budget_) fault("holds more than the budget", op, held);
    for (std::uint32_t i = 0; i < entry.use_count; ++i) {
      const auto& use = tape_.uses[entry.first_use + i];
      for (Page& page : storages_[use.value]) {
        if (!page.is_resident) fault("uses a page that is out", op, use.value);
        if (use.writes) page.has_copy = false;
      }
    }
    for (ValueIndex i = 0; i < storages_.size(); ++i) {
      if (tape_.values[i].birth == op) storages_[i].assign(tape_.values[i].pages, Page{});
      if (tape_.values[i].death == op) storages_[i].clear();
    }
    for (std::uint32_t i = plan_.write_outs.first[op]; i < plan_.write_outs.first[op + 1]; ++i)
      write_out(plan_.swaps[plan_.write_outs.entries[i]]);
  }

  void fetch(OpIndex op, ValueIndex value) {
    if (value == kNoValue) return fault("fetches nothing", op, value);
    for (Page& page : storages_[value]) {
      if (page.is_resident) continue;
      if (!page.has_copy) fault("fetches a page without a copy", op, value);
      page.is_resident = true;
      ++report_.read_pages;
    }
  }

  void write_out(const PlannedSwap& swap) {
    auto& pages = storages_[swap.value];
    for (std::size_t i = pages.size() - std::min<std::size_t>(pages.size(), swap.pages);
         i < pages.size(); ++i) {
      if (!pages[i].is_resident) continue;
      pages[i].is_resident = false;
      if (!pages[i].has_copy) ++report_.written_pages;
      pages[i].has_copy = true;
    }
  }

  void renumber() {
    std::vector<std::vector<Page>> next(storages_.size());
    for (ValueIndex i = 0; i < storages_.size(); ++i) {
      const TapeValue& value = tape_.values[i];
      if (value.death == kSurvives && value.becomes != kNoValue)
        next[value.becomes] = std::move(storages_[i]);
    }
    storages_ = std::move(next);
  }

  /// Goes with one storage from its write-out to its fetch and on to its next use.
  void follow(const PlannedSwap& swap) {
    const auto op_count = static_cast<OpIndex>(tape_.ops.size());
    if (swap.pages == 0 || swap.pages > tape_.values[swap.value].pages)
      fault("moves more or less than there is", swap.leave, swap.value);
    ValueIndex value = swap.value;
    OpIndex op = swap.leave;
    bool is_fetched = false;
    for (std::uint32_t out = 0;; ++out) {
      if (tape_.values[value].death == op) {
        if (swap.fetch != kNoOp) fault("dies before its fetch", op, value);
        return;
      }
      if (++op == op_count) {
        op = 0;
        value = tape_.values[value].becomes;
        if (value == kNoValue) return;
      }
      if (out == swap.out_ops) {
        is_fetched = true;
        if (swap.fetch == kNoOp) return;
        if (op != swap.fetch || value != swap.fetch_value) fault("fetched elsewhere", op, value);
      }
      if (!is_used(op, value)) continue;
      if (!is_fetched) fault("used before its fetch", op, value);
      if (op != swap.needed || value != swap.needed_value) fault("needed elsewhere", op, value);
      return;
    }
  }

  bool is_used(OpIndex op, ValueIndex value) const {
    const auto first = tape_.uses.begin() + tape_.ops[op].first_use;
    return std::any_of(first, first + tape_.ops[op].use_count,
                       [&](const auto& use) { return use.value == value; });
  }

  const StepTape& tape_;
  const SwapPlan& plan_;
  const std::uint32_t budget_;
  std::vector<std::vector<Page>> storages_;
  bool is_settled_ = false;
  PageReport report_;
};

}  // namespace

PageReport simulate_pages(const StepTape& tape, const SwapPlan& plan, std::uint32_t budget_pages) {
  return PageSimulator(tape, plan, budget_pages).run();
}

}  // namespace spillway::planner
