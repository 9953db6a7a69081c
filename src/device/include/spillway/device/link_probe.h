#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/median.h"
#include "spillway/device/device.h"

namespace spillway::device {

/// Bytes per second of copies of one size, of which so many are given at once.
struct LinkPoint {
  Bytes block;
  std::uint32_t depth = 0;
  Spread out;   ///< To the host, alone.
  Spread in;    ///< From the host, alone.
  Spread both;  ///< Both at once, added up.
};

/// The same beside work of the device that never pauses, and what that loses by it.
struct LinkBesideWork {
  LinkPoint link;
  /// Copies within the device's memory, in bytes per second: alone, and beside copies both ways.
  double work_alone = 0.0;
  double work_beside = 0.0;
  /// Time that a byte moved both ways costs the device's own work. 0: less than can be seen.
  double lost_seconds_per_byte = 0.0;
};

/// What it takes to make host memory ready for copies.
struct PinningTime {
  Bytes size;
  double seconds = 0.0;
  std::string refusal;  ///< Why it stayed pageable; empty: it is pinned.
};

struct LinkProbeOptions {
  std::vector<Bytes> blocks = {256_KiB, 4_MiB, 32_MiB};
  std::vector<std::uint32_t> depths = {1, 4, 16};
  Bytes most_at_once = 256_MiB;  ///< In either direction: larger points are left out.
  std::vector<Bytes> pinned_sizes = {2_MiB, 32_MiB, 256_MiB};
  unsigned repetitions = 5;
  std::function<void(const std::string&)> progress = {};  ///< Called before each point.
};

struct LinkProbe {
  std::string why_pageable;  ///< Where pinning is refused: the rates are those of a detour.
  std::vector<LinkPoint> points;
  std::optional<LinkBesideWork> beside;  ///< At `best`; none where nothing was measured.
  std::vector<PinningTime> pinning;

  /// The point whose rates plans are to take: of blocks as runs move them (4 MiB), else of any, the
  /// one that moves most both ways. Null when there is none.
  const LinkPoint* best() const;

  /// What a copy takes beyond its bytes where nothing else is under way: the time of one alone,
  /// less what it adds to many. None without a depth of 1 and a deeper one.
  std::optional<double> fixed_seconds(Spread LinkPoint::*direction) const;
};

/// Measures the link between a device and memory of the host, in seconds on a GPU. Throws
/// ConfigError for options that ask for nothing, Error and IoError where memory is refused or a
/// copy fails.
LinkProbe measure_link(Device& device, const LinkProbeOptions& options);

}  // namespace spillway::device
