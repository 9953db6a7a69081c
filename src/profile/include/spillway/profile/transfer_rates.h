#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "spillway/base/transfer_rate.h"

namespace spillway {
class JsonObject;
}

namespace spillway::profile {

/// How fast bytes move between memory and the store, and what that costs. Until it is measured: a
/// fair NVMe disk.
struct TransferRates {
  TransferRate write{1.5e9};  ///< When only writing.
  TransferRate read{2.0e9};   ///< When only reading.
  /// What is left of either rate while both directions are busy: 0.5 is a disk that shares its time
  /// evenly, 1 a full-duplex link.
  double duplex_share = 0.5;
  double write_fixed_seconds = 0.0;  ///< Added to a write that finds no other one under way.
  double read_fixed_seconds = 0.0;   ///< The same for reads.
  /// Wall time that a transferred byte costs the operators that run meanwhile (shared memory bus).
  double interference_seconds_per_byte = 5e-11;
  /// The same for its checksum, which a processor takes that operators could use. 0: none is taken.
  double checksum_seconds_per_byte = 0.0;

  /// What a transferred byte costs the operators beside it in all.
  double slowdown_seconds_per_byte() const {
    return interference_seconds_per_byte + checksum_seconds_per_byte;
  }
  bool operator==(const TransferRates&) const = default;
};

/// A store without an end behind a first one that has one, as disks behind host memory. Its bytes
/// pass both.
struct FarTier {
  TransferRates rates;           ///< Its own, without the link to the near tier.
  std::uint32_t near_pages = 0;  ///< Pages that may have their copies in the near tier at once.

  bool operator==(const FarTier&) const = default;
};

/// What files call one of them.
struct RateField {
  const char* key;
  TransferRate TransferRates::*field;
};
inline constexpr std::array<RateField, 2> kRateFields{
    {{"write_bytes_per_second", &TransferRates::write},
     {"read_bytes_per_second", &TransferRates::read}}};

/// The same of the rest, and the values that some disk or link has.
struct TransferCostField {
  const char* key;
  double TransferRates::*field;
  double least;
  double most;
  bool may_be_missing = false;  ///< In files: then it has its default.
};
inline constexpr double kLeastDuplexShare = 1e-3;
inline constexpr std::array<TransferCostField, 5> kTransferCostFields{
    {{"duplex_share", &TransferRates::duplex_share, kLeastDuplexShare, 1.0},
     {"write_fixed_seconds", &TransferRates::write_fixed_seconds, 0.0, 1e3},
     {"read_fixed_seconds", &TransferRates::read_fixed_seconds, 0.0, 1e3},
     {"interference_seconds_per_byte", &TransferRates::interference_seconds_per_byte, 0.0, 1.0},
     {"checksum_seconds_per_byte", &TransferRates::checksum_seconds_per_byte, 0.0, 1.0, true}}};

/// The first of them that no disk or link has, with its value and the limits: "duplex_share is 2,
/// not from 0.001 to 1"; empty: they are sound. Whoever takes rates from elsewhere asks this.
std::string problem_with(const TransferRates& rates);

/// Reads all of them from an object of a file. Throws ConfigError with the place of what is missing
/// or that no disk or link has.
TransferRates rates_in(JsonObject& object);

/// What that reads. `Json` is an object of the JSON library, which no public header shows.
template <typename Json>
Json rates_json(const TransferRates& rates) {
  Json json;
  for (const RateField& field : kRateFields)
    json[field.key] = (rates.*field.field).bytes_per_second();
  for (const TransferCostField& field : kTransferCostFields) json[field.key] = rates.*field.field;
  return json;
}

}  // namespace spillway::profile
