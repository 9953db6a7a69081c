#include "spillway/split/refusals.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "first_rank.h"

namespace spillway::split {
namespace {

using Text = std::array<char, 2048>;

struct Word {
  Text refusal{};
  Text gpus{};
  bool has_share = false;
};

struct Answer {
  Text refusal{};
  CommonGpus gpus;
};

void wait_at_start(const device::Event& event, Rank /*peer*/) {
  const device::Outcome outcome = event.wait();
  if (!outcome.succeeded())
    throw transport::TransportError("a rank was lost at the start: {}", outcome.error);
}

Text text_of(std::string_view words) {
  Text text{};
  words.copy(text.data(), text.size() - 1);
  return text;
}

/// Of the first rank that has one; without its name where all have that one.
Text first_of(const std::vector<Word>& all, const std::vector<std::string>& hosts) {
  const auto first = std::find_if(all.begin(), all.end(),
                                  [](const Word& word) { return word.refusal.front() != '\0'; });
  const auto is_same = [&](const Word& word) { return word.refusal == first->refusal; };
  if (first == all.end() || std::all_of(all.begin(), all.end(), is_same))
    return all.front().refusal;
  const auto rank = static_cast<std::size_t>(first - all.begin());
  return text_of(message("rank {} ({}): {}", rank, hosts[rank], first->refusal.data()));
}

/// Of each rank.
std::vector<CommonGpus> common_gpus(const std::vector<Word>& all,
                                    const std::vector<std::string>& hosts) {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<std::size_t>> by_name;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (const std::string_view gpus = all[rank].gpus.data(); !gpus.empty())
      by_name[{hosts[rank], gpus}].push_back(rank);
  std::vector<CommonGpus> common(all.size());
  bool are_asked_for = false;
  for (const auto& [name, ranks] : by_name) {
    if (ranks.size() == 1) continue;
    for (const std::size_t rank : ranks) {
      common[rank].has_mine = true;
      are_asked_for |= all[rank].has_share;
    }
  }
  for (CommonGpus& each : common) each.are_asked_for = are_asked_for;
  return common;
}

}  // namespace

CommonGpus agree_on_refusals(transport::Transport& transport, const std::vector<std::string>& hosts,
                             const std::string& mine, const RankGpus& gpus) {
  const std::vector<Word> all = gathered(
      transport, kRefusal, Word{text_of(mine), text_of(gpus.name), gpus.has_share}, &wait_at_start);
  Answer answer{};
  if (transport.rank() == kFirst) {
    answer.refusal = first_of(all, hosts);
    const std::vector<CommonGpus> common = common_gpus(all, hosts);
    for (std::uint32_t rank = 1; rank < transport.ranks(); ++rank) {
      answer.gpus = common[rank];
      wait_at_start(transport.send(Rank(rank), kRefusalOfAll, device::host_span_of(answer)),
                    Rank(rank));
    }
    answer.gpus = common.front();
  } else {
    wait_at_start(transport.receive(kFirst, kRefusalOfAll, device::host_span_of(answer)), kFirst);
  }
  if (answer.refusal.front() != '\0') throw AgreedError("{}", answer.refusal.data());
  return answer.gpus;
}

}  // namespace spillway::split
