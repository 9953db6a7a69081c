#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/autograd_facts.h"
#include "spillway/base/bytes.h"
#include "spillway/base/clock.h"
#include "spillway/profile/step_tape.h"
#include "spillway/profile/storage_class.h"
#include "spillway/profile/transfer_rates.h"

namespace spillway::profile {

/// Operators of equal name and shapes.
struct OpKind {
  std::string name;       ///< With namespace and overload: `aten::convolution`.
  std::string arguments;  ///< Shapes, dtypes and numbers as in error messages; may be empty.

  bool operator==(const OpKind&) const = default;
};

/// The host's clock, from the begin of an operator to that of the next one.
inline constexpr std::string_view kHostClock = "host";
/// Events in the stream of a device, recorded where operators begin, and asked for later.
inline constexpr std::string_view kDeviceEvents = "device events";

/// Where a profile comes from.
struct ProfileOrigin {
  std::string source;   ///< `recorded`, or the trace format that it was imported from.
  std::string program;  ///< Its path or name; of a Python program the script's, or "-m MODULE".
  std::string libtorch;
  std::string spillway;
  std::uint32_t threads = 0;
  std::uint32_t steps = 0;  ///< Repetitions that the times are medians of.
  std::string command{};    ///< Its command line, cut short beyond some length; empty: unknown.
  std::string device{};     ///< Whose operators and memory it tells of: "cuda:0"; empty: the CPU.
  std::string clock{};      ///< What measured the times: `kHostClock`, `kDeviceEvents`, or unknown.

  bool operator==(const ProfileOrigin&) const = default;
};

/// Sets program and command from the words of a command line, the program's own path first.
void set_program(ProfileOrigin& origin, const std::vector<std::string>& words);

/// The operator of the whole run, start-up and validation too, that needed most at once.
struct ProgramNeeds {
  Bytes budget;  ///< The smallest that surely does for it, what is too small to leave included.
  OpKind op;
  bool is_early = false;  ///< It ran before the first step had ended.

  bool operator==(const ProgramNeeds&) const = default;
};

/// An operator waits for an earlier one through something that is too small to be a value.
struct HiddenDependence {
  OpIndex before = 0;
  OpIndex after = 0;

  bool operator==(const HiddenDependence&) const = default;
};

/// One repeating step with names, classes and measured times: what planning needs to know of a
/// trainer, in a file that other tools read too. profile_format.md describes the format.
struct StepProfile {
  ProfileOrigin origin;
  Bytes page_size{std::uint64_t{2} << 20};  ///< The unit of the tape.
  Bytes small_bytes;  ///< Peak of what is too small to be on the tape; to plans, it never leaves.
  Bytes small_parameter_bytes;  ///< Of parameters among these; 0 for older and imported ones.
  StepTape tape;
  std::vector<OpKind> kinds;
  std::vector<std::uint32_t> kind_of_op;  ///< Per operator, into `kinds`.
  std::vector<Duration> spread_of_op;     ///< Per operator: upper less lower quartile.
  /// Per operator, as autograd knew it: when it ran, and of which earlier operator it computes
  /// gradients (`autograd_links.h`). Both empty: unknown, as in imported and older profiles.
  std::vector<OpPhase> phase_of_op;
  std::vector<OpIndex> forward_of_op;
  std::vector<StorageClass> class_of_value;  ///< Per value.
  std::vector<Bytes> bytes_of_value;         ///< Per value, before rounding to pages.
  std::optional<TransferRates> rates;        ///< Of the machine and disk it was recorded on.
  /// Disks behind host memory; with them `rates` are those of the link to that.
  std::optional<FarTier> disks;
  std::optional<ProgramNeeds> program_needs;  ///< Unknown for imported and older ones.
  /// All of them, so that uses and these tell everything that an operator waits for. Unknown for
  /// recorded and older ones: nobody watches what is small.
  std::optional<std::vector<HiddenDependence>> hidden_dependences;

  bool operator==(const StepProfile&) const = default;
};

/// Throws PlanError with the first contradiction, also of the tape.
void check(const StepProfile& profile);

/// The profile as JSON.
std::string to_text(const StepProfile& profile);

/// Reads what `to_text` wrote. Throws ConfigError that begins with `name` (the file) for text that
/// is no profile, truncated, of a newer format, or contradicts itself.
StepProfile parse_profile(std::string_view text, const std::string& name);

}  // namespace spillway::profile
