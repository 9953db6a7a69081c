#include "split_notices.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

#include "first_rank.h"
#include "gradient_watch.h"
#include "spillway/base/log.h"

namespace spillway::split {
namespace {

/// Where they read a parameter without gradients, the model itself is computed.
constexpr std::array<std::string_view, 6> kProducts{"aten::addmm",       "aten::mm",
                                                    "aten::bmm",         "aten::baddbmm",
                                                    "aten::convolution", "aten::embedding"};

/// What lies at an address.
std::string memory_at(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char between = 0;
    std::string rights, offset, device, inode, path;
    words >> std::hex >> begin >> between >> end >> rights >> offset >> device >> inode >> std::ws;
    std::getline(words, path);
    if (begin <= wanted && wanted < end && path.starts_with('/'))
      return message("a mapped file ({})", path);
  }
  return "memory that is not LibTorch's, as that of a NumPy array";
}

}  // namespace

SplitNotices::SplitNotices(Rank rank)
    : tells_of_foreign_(rank == kFirst), tells_of_start_(rank == kFirst) {}

void SplitNotices::foreign_read(std::string_view name, OpPhase phase, const at::Tensor& tensor) {
  if (!tells_of_foreign_ || phase != OpPhase::kForward || !tensor.requires_grad()) return;
  const at::Tensor leaf = leaf_of(tensor);
  if (!leaf.defined() || !leaf.is_alias_of(tensor)) return;
  tells_of_foreign_ = false;
  log_warning("a tensor that is trained ({} {}, read by {}) lies in {}, so every rank keeps and "
              "trains it, and others like it: give them memory of LibTorch behind loading "
              "(p.data = p.data.clone())",
              leaf.scalar_type(), leaf.sizes(), name, memory_at(leaf.storage().data()));
}

void SplitNotices::called_before_training(std::string_view name, OpPhase phase,
                                          std::span<const pipeline::OperatorUse> uses) {
  if (!tells_of_start_ || phase != OpPhase::kOther) return;
  if (std::find(kProducts.begin(), kProducts.end(), name) == kProducts.end()) return;
  const auto reads_parameter = [](const pipeline::OperatorUse& use) {
    return use.requires_gradient && !use.writes;
  };
  if (std::none_of(uses.begin(), uses.end(), reads_parameter)) return;
  tells_of_start_ = false;
  log_info("the model is used ({}) before its first forward of training, which deals its "
           "parameters to ranks: until then every rank keeps and computes all of it; train before "
           "you validate where that is too much",
           name);
}

}  // namespace spillway::split
