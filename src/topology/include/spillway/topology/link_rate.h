#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/transfer_rate.h"

namespace spillway::topology {

/// Rates of copies of one size between a GPU and pinned memory of its host.
struct LinkSample {
  Bytes block;
  unsigned depth = 0;        ///< Copies that were given at once.
  bool beside_work = false;  ///< Whether the GPU copied within its own memory meanwhile.
  TransferRate out;
  TransferRate in;
  TransferRate both;  ///< At once, added up.
  bool operator==(const LinkSample&) const = default;
};

/// Seconds of the host to lay a chunk of a GPU's memory beneath an address, and to take it away.
struct MappingSample {
  Bytes chunk;
  std::string beside;  ///< "nothing", "work", "copies"
  double map_seconds = 0.0;
  double unmap_seconds = 0.0;
  bool operator==(const MappingSample&) const = default;
};

/// Seconds to make host memory of this size ready for copies.
struct PinningSample {
  Bytes size;
  double seconds = 0.0;
  bool operator==(const PinningSample&) const = default;
};

/// Measurements of the link between a GPU and its host.
struct LinkRate {
  std::string name;         ///< Of the card: "NVIDIA H100 80GB HBM3".
  std::string device;       ///< "cuda:0", as it was seen when measured.
  std::string measured_at;  ///< ISO 8601, UTC.
  TransferRate out;         ///< As plans take it, to the host alone.
  TransferRate in;          ///< From the host alone.
  TransferRate both;        ///< Both at once, added up.
  /// Seconds of a copy beyond its bytes where nothing else is under way.
  std::optional<double> out_fixed_seconds{};
  std::optional<double> in_fixed_seconds{};
  /// What a byte that moves costs the GPU's own work.
  std::optional<double> interference_seconds_per_byte{};
  std::vector<LinkSample> samples{};
  std::vector<MappingSample> mapping{};
  std::vector<PinningSample> pinning{};

  bool operator==(const LinkRate&) const = default;
};

}  // namespace spillway::topology
