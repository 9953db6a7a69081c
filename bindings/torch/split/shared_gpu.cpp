#include "spillway/split/shared_gpu.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/transport/survey/texts.h"

namespace spillway::split {
namespace {

/// How many ranks on the host of this one have the same text; 0 where its own is empty.
unsigned ranks_with_the_same(transport::Transport& transport, const std::vector<std::string>& hosts,
                             const std::string& mine) {
  constexpr const char* kNone = "-";  // Messages are of one byte or more.
  const std::vector<std::string> all =
      transport::gather_texts(transport, mine.empty() ? kNone : mine);
  std::map<std::pair<std::string_view, std::string_view>, std::uint64_t> by_text;
  for (std::size_t rank = 0; rank < all.size(); ++rank) ++by_text[{hosts[rank], all[rank]}];
  std::vector<std::uint64_t> counts(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != kNone) counts[rank] = by_text[{hosts[rank], all[rank]}];
  return static_cast<unsigned>(transport::number_for_this_rank(transport, counts));
}

}  // namespace

RankGpus gpus_of_rank(bool has_cuda, bool has_share) {
  if (!has_cuda) return {};
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return {visible == nullptr ? "all" : std::string(visible), has_share};
}

std::string address_of_gpu() {
  const auto gpu = device::cuda_facts_of({device::DeviceKind::kCuda, 0});
  return gpu ? gpu->bus_address : std::string();
}

/// Ranks that see GPUs by different names have different ones. By the same name a site may have
/// given each its own: only then CUDA is asked, as its start takes time and memory.
unsigned ranks_on_gpu(transport::Transport& transport, const std::vector<std::string>& hosts,
                      bool has_share, CommonGpus common,
                      const std::function<std::string()>& address) {
  if (!common.are_asked_for) return has_share ? 1 : 0;
  return std::max(
      1U, ranks_with_the_same(transport, hosts, common.has_mine ? address() : std::string()));
}

}  // namespace spillway::split
