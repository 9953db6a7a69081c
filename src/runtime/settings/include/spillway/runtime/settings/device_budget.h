#pragma once

#include <span>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/device/device.h"
#include "spillway/runtime/settings/budget.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/topology/machine.h"

namespace spillway::runtime {

/// Who uses a card.
struct CardSharing {
  unsigned ranks = 1;           ///< This one included, as far as is known or assumed.
  std::string assumption = {};  ///< "8 on 4 GPUs"; empty: they were counted.
  bool may_be_shared = false;   ///< That is not known, and there are more ranks than cards.
};

/// `counted`: ranks that have told one another that they use it; 0: they have not met. Then ranks
/// are taken to be spread evenly over the `visible` cards where all `ranks_here` of the host see
/// the same (`sees_as_others`; not known: false). 0 visible ones: unknown.
CardSharing sharing_of_card(unsigned counted, unsigned ranks_here, unsigned visible,
                            bool sees_as_others);

/// A device with memory of its own, as its budget wants to know it.
struct DeviceFacts {
  device::DeviceId id;
  std::string name;  ///< Of the card: "NVIDIA H100 80GB HBM3".
  device::MemoryInfo memory;
  Bytes page_size;
  CardSharing sharing = {};
};

/// Whether the budget of that device is a share of what is free there, not a size.
bool has_share_of(const Settings& settings, device::DeviceId id);

/// Bytes that a budget derived from a card of that size leaves free, for kernels and libraries:
/// 1 GiB, or an eighth of a smaller one.
Bytes default_device_reserve(Bytes total);

/// The pages of a GPU, where its memory is not coarser: a storage is at least half of one. Mapping
/// costs by the page, so larger ones are faster: see benchmarks/what_does_mapping_cost_on_a_gpu.
Bytes device_page_size(const Settings& settings);

/// Throws ConfigError where a budget is too small for any GPU. For who starts a program, as a run
/// sees its GPUs only at their first tensors.
void check_device_budgets(const Settings& settings);

/// Throws ConfigError where a budget is for a GPU that is none of the `gpus` that this process
/// sees.
void check_named_gpus(const Settings& settings, std::size_t gpus);

/// The smallest tensor of a device that has pages of its own: half a page or more, so that little
/// is wasted.
Bytes least_paged(const Settings& settings, Bytes page_size);

/// Turns the request for a device into bytes: a size, or a share of what is free there for each of
/// its sharers less the reserve; of addresses as many pages as the host's tensors have. A size that
/// this card does not have is lowered, with a warning, where it is for all devices. Throws
/// ConfigError where it is for GPUs, when nothing sensible remains, or where the size is below two
/// pages.
ResolvedBudget resolve_device_budget(const Settings& settings, const DeviceFacts& facts);

/// What the budgets of `settings` name that is none of `used`: a device, or all GPUs.
std::vector<std::string> needless_budgets(const Settings& settings,
                                          std::span<const device::DeviceId> used);

/// Pinned host memory for what leaves a device.
struct HostMemory {
  Bytes size;          ///< In whole pages.
  std::string origin;  ///< "given", or how it was derived.
};

/// As `ram:` of `nvme` says for each device, or as much as its `budget`, at most half of what this
/// process can use beside the `pinned` bytes of other devices. Throws ConfigError for more than
/// there is, for less than two pages, and when the machine does not tell what there is.
HostMemory host_memory_behind(const DeviceFacts& facts, const Settings& settings,
                              const topology::Machine& machine, Bytes budget, Bytes pinned,
                              unsigned sharers);

}  // namespace spillway::runtime
