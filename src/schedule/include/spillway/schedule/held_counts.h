#pragma once

namespace spillway::schedule {

/// What a stage or a rank holds in the action lists, in units of one micro-batch or of one copy of
/// the parameters; each at its own worst moment, which need not be the same: with weights in turn
/// on the host, two copies are there while stashes are few.
struct HeldCounts {
  double in_flight = 1;  ///< Stashes of micro-batches that are alive at once, at the peak. May
                         ///< be fractional (split backward).
  double weight_versions = 1;  ///< Copies of the parameters, of all replicas together.
  double state_copies = 1;     ///< Copies of gradients, optimizer states and frozen parameters.
};

}  // namespace spillway::schedule
