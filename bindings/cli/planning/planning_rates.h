#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/planner/swap_plan.h"
#include "spillway/profile/step_profile.h"
#include "spillway/profile/transfer_rates.h"

namespace spillway::cli {

/// Options about transfers. A link has a rate in either direction, and so have disks; both
/// directions of one are there, or none.
struct RateOptions {
  std::optional<TransferRate> link_out{};
  std::optional<TransferRate> link_in{};
  std::optional<double> duplex{};          ///< In (0, 1].
  std::string rates{};                     ///< File of `bench-io`.
  std::vector<std::string> nvme{};         ///< Directories whose rates in that file add up.
  std::optional<Bytes> host_memory{};      ///< Size of the tier between the link and the disks.
  std::optional<TransferRate> disk_out{};  ///< Of the disks behind that tier.
  std::optional<TransferRate> disk_in{};
  std::string gpu{};  ///< Whose link in the file of --rates it is; empty: the only one.

  bool operator==(const RateOptions&) const = default;
  bool has_measured_disks() const { return !rates.empty() || !nvme.empty(); }
  /// Of ranks: the disks of their hosts, without the memory of these before them.
  bool swaps_to_disks() const { return has_measured_disks() && !host_memory; }
};

/// Disks behind a link, and how much the host memory between them holds.
struct DisksBehind {
  profile::TransferRates rates;
  Bytes host_memory;
  std::string source;
};

struct ChosenRates {
  profile::TransferRates rates;
  std::string source;  ///< "given", "disks.json: /scratch", …
  std::optional<DisksBehind> far{};
};

/// Rates of a link or of measured disks, whichever the words name, else of the profile, else
/// defaults. With host memory there are two tiers: the link first, which may be that of a measured
/// GPU, and the disks behind it; those of a profile that has both, of which a file
/// of rates and the size of the host memory take the place of what they name. Throws ConfigError
/// for options that contradict each other with this profile, and for a directory that was not
/// measured; IoError for a file that is not there.
ChosenRates choose_rates(const RateOptions& options, const profile::StepProfile& profile);

/// Of the disks that `has_measured_disks` is about, each way while both are busy. Throws as
/// `choose_rates`.
profile::TransferRates measured_disks(const RateOptions& options,
                                      const profile::StepProfile& profile);

/// What a rank moves each way while it moves both; none: nowhere.
struct SwapRates {
  TransferRate host;
  TransferRate disk;  ///< Behind the host's memory, where that has an end and disks are named.
};

/// Of the options about a link, disks, which so many ranks share, and the memory between them.
/// Throws as `choose_rates`.
SwapRates swap_rates(const RateOptions& options, std::uint32_t sharers,
                     const profile::StepProfile& profile);

/// Directories as a run reads them. Throws ConfigError for those with sizes, which mean nothing
/// here.
std::vector<std::string> directories_in(const std::string& text);

/// The disks as the planner sees them; none without host memory.
std::optional<planner::FarTier> far_tier(const ChosenRates& rates, Bytes page_size);

/// "12.00 GB/s out, 12.00 GB/s in, both at once"; with disks behind: "…; 64.0 GiB of host memory,
/// then 3.00 GB/s out, …"
std::string rates_text(const ChosenRates& rates);

}  // namespace spillway::cli
