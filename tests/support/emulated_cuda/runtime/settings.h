#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::emulated {

/// What the environment says; read once, at the first call. A value that cannot be read ends the
/// process.
struct Settings {
  std::vector<int>
      devices;  ///< EMU_CUDA_DEVICES (1) of them, as CUDA_VISIBLE_DEVICES chooses and orders them.
  std::size_t memory;         ///< EMU_CUDA_MEMORY (8GiB): bytes of each device.
  std::size_t pinned_memory;  ///< EMU_CUDA_PINNED (no limit): bytes of pinned host memory.
  std::size_t grain;          ///< EMU_CUDA_GRAIN (2MiB): granularity of virtual memory.
  bool virtual_memory;        ///< EMU_CUDA_VIRTUAL (1): the devices have virtual memory.
  int capability;             ///< EMU_CUDA_CC (8.0), times ten.
  int driver;  ///< EMU_CUDA_DRIVER (13.0): release that the driver serves, as 13000; 0: no driver.
  std::string name;         ///< EMU_CUDA_NAME: of all devices; empty: "Emulated GPU 0" and on.
  bool poison;              ///< EMU_CUDA_POISON (1): new device memory is filled with 0xFF.
  std::string bus_address;  ///< EMU_CUDA_BUS_ADDRESS: what all devices say; empty: one for each.
  bool trace;               ///< EMU_CUDA_TRACE (0): prints at the end how often each
                            ///< thread called each function.
  bool check;       ///< EMU_CUDA_CHECK (1): happens-before check, protection of pinned memory.
  bool nccl_fixed;  ///< EMU_NCCL_FIXED (0): NCCL takes no memory that the program maps.
  std::uint64_t delay_us;   ///< EMU_CUDA_DELAY_US (0): longest delay before a piece of work.
  std::uint64_t delay_pct;  ///< EMU_CUDA_DELAY_PCT (100): share of the pieces that are delayed.
  std::uint64_t seed;       ///< EMU_CUDA_SEED (1): of the delays.
};

const Settings& settings();

}  // namespace spillway::emulated
