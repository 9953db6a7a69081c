#pragma once

namespace spillway::emulated {

/// From now on a fault in memory of a device, or in pinned memory that a device uses, says on
/// stderr what it means before the process ends. Other faults go to the handler that was there
/// before. Called once.
void handle_faults();

}  // namespace spillway::emulated
