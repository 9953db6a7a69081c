#pragma once

namespace spillway::profile {

/// How fast bytes move between memory and the store, and what that costs. Until it is measured: a
/// fair NVMe disk.
struct TransferRates {
  double write_bytes_per_second = 1.5e9;  ///< When only writing.
  double read_bytes_per_second = 2.0e9;   ///< When only reading.
  /// What is left of either rate while both directions are busy: 0.5 is a disk that shares its time
  /// evenly, 1 a full-duplex link.
  double duplex_share = 0.5;
  double write_fixed_seconds = 0.0;  ///< Added to each write of up to eight pages.
  double read_fixed_seconds = 0.0;   ///< The same for reads.
  /// Wall time that a transferred byte costs the operators that run meanwhile (shared memory bus).
  double interference_seconds_per_byte = 5e-11;
};

}  // namespace spillway::profile
