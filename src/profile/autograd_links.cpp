#include "spillway/profile/autograd_links.h"

#include <algorithm>
#include <utility>

namespace spillway::profile {

std::vector<OpIndex> forward_operators(std::span<const AutogradFacts> ops) {
  std::vector<std::pair<AutogradNode, OpIndex>> makers;
  for (OpIndex op = 0; op < ops.size(); ++op)
    if (ops[op].made.is_some()) makers.emplace_back(ops[op].made, op);
  std::stable_sort(makers.begin(), makers.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<OpIndex> forward(ops.size(), kNoForward);
  for (OpIndex op = 0; op < ops.size(); ++op) {
    const AutogradNode node = ops[op].runs_in;
    if (!node.is_some()) continue;
    auto after = std::upper_bound(
        makers.begin(), makers.end(), node,
        [](const AutogradNode& wanted, const auto& maker) { return wanted < maker.first; });
    if (after == makers.begin()) continue;
    const AutogradNode made = std::prev(after)->first;
    const auto maker = std::lower_bound(
        makers.begin(), after, made,
        [](const auto& each, const AutogradNode& wanted) { return each.first < wanted; });
    if (made.thread == node.thread && maker->second < op) forward[op] = maker->second;
  }
  return forward;
}

std::optional<OpIndex> forward_end_of(std::span<const OpPhase> phases) {
  const auto first = std::find(phases.begin(), phases.end(), OpPhase::kBackward);
  if (first == phases.begin() || first == phases.end()) return std::nullopt;
  return static_cast<OpIndex>(first - phases.begin() - 1);
}

}  // namespace spillway::profile
