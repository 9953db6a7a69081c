#pragma once

#include <string>

#include "spillway/profile/step_profile.h"
#include "spillway/profile/transfer_rates.h"

namespace spillway::cli {

/// What was written on the command line about transfers; empty: nothing.
struct RateWords {
  std::string link_out{};  ///< GB/s, 10^9 bytes.
  std::string link_in{};
  std::string duplex{};  ///< In (0, 1].
  std::string rates{};   ///< File of `bench-io`.
  std::string nvme{};    ///< Directories, separated by commas, whose rates in that file add up.
};

struct ChosenRates {
  profile::TransferRates rates;
  std::string source;  ///< "given", "disks.json: /scratch", …
};

/// Rates of the command line, else of the file of rates, else of the profile, else defaults. Throws
/// ConfigError for rates that no link or disk has, with their value, and for a directory that was
/// not measured; IoError for a file that is not there.
ChosenRates choose_rates(const RateWords& words, const profile::StepProfile& profile);

/// "12.00 GB/s out, 12.00 GB/s in, both at once at full rate"
std::string rates_text(const profile::TransferRates& rates);

}  // namespace spillway::cli
