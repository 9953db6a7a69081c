#include "spillway/split/refusals.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "first_rank.h"

namespace spillway::split {
namespace {

using Text = std::array<char, 2048>;

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
Text first_of(const std::vector<Text>& all, const std::vector<std::string>& hosts) {
  const auto first =
      std::find_if(all.begin(), all.end(), [](const Text& text) { return text.front() != '\0'; });
  if (first == all.end() || std::count(all.begin(), all.end(), *first) == std::ssize(all))
    return all.front();
  const auto rank = static_cast<std::size_t>(first - all.begin());
  return text_of(message("rank {} ({}): {}", rank, hosts[rank], first->data()));
}

}  // namespace

void agree_on_refusals(transport::MpiTransport& transport, const std::string& mine) {
  const std::vector<Text> all = gathered(transport, kRefusal, text_of(mine), &wait_at_start);
  Text answer{};
  if (transport.rank() == kFirst) {
    answer = first_of(all, transport.job().hosts);
    for (std::uint32_t rank = 1; rank < transport.ranks(); ++rank)
      wait_at_start(transport.send(Rank(rank), kRefusalOfAll, device::host_span_of(answer)),
                    Rank(rank));
  } else {
    wait_at_start(transport.receive(kFirst, kRefusalOfAll, device::host_span_of(answer)), kFirst);
  }
  if (answer.front() != '\0') throw AgreedError("{}", answer.data());
}

}  // namespace spillway::split
