#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/device/devices.h"

namespace spillway::device {

/// NVIDIA's GPUs, in the order in which this process sees them. Links no library of CUDA: takes the
/// runtime that the process has loaded, or else loads it.
DeviceBackend cuda_backend();

/// A GPU as `spillway doctor` shows it. Making these opens no device.
struct CudaDeviceFacts {
  DeviceId id;
  std::string name;                ///< "NVIDIA H100 80GB HBM3"
  std::string compute_capability;  ///< "9.0"
  Bytes memory;
  std::string bus_address;       ///< "0000:17:00.0", as Linux writes it.
  std::optional<int> numa_node;  ///< Nearest one; none: unknown, or the machine has one node.
  bool is_mig_slice = false;     ///< A part of a GPU, as Multi-Instance GPU divides it.
  Capabilities capabilities;
  std::vector<DeviceId> direct_peers;  ///< Whose memory it reaches without the host.
};

struct CudaFacts {
  std::string reason;  ///< Why there are no devices, with the way to mend it; empty: there are.
  bool names_none = false;  ///< That is why: CUDA_VISIBLE_DEVICES names none that is there.
  std::string driver;       ///< CUDA release that the driver serves, "13.0"; empty: no driver.
  std::string runtime;      ///< Release of the runtime library; empty: it was not found.
  std::vector<CudaDeviceFacts> devices;
};

/// What is known of this machine's GPUs. Never throws.
CudaFacts cuda_facts();
/// Of one of them; none: it is not there. Never throws.
std::optional<CudaDeviceFacts> cuda_facts_of(DeviceId id);

/// Why GPUs do not read and write files themselves unless that is asked for (DirectFiles::kAuto),
/// with the way to mend it; empty: they do where the file system lets them. Never throws.
std::string why_no_direct_files();

/// A queue over a stream (cudaStream_t) of `device` that somebody else made, and that outlives it:
/// to record what a trainer has launched there, and to let it wait. Its end waits for nothing.
/// Throws Error for a device that is not CUDA's.
std::unique_ptr<Queue> queue_over_stream(Device& device, void* stream);

/// Whether a graph is made of what the queue of a CUDA device is given; `record` would be a part of
/// it then. Also true where CUDA does not tell, but for a device that is lost. Throws Error for
/// other queues.
bool is_captured(const Queue& queue);
/// The same of a stream (cudaStream_t), which is of the current device where it is a default one,
/// once a device is open.
bool is_stream_captured(void* stream);

/// What has failed of the work that the queue of a CUDA device was given since its latest event, as
/// far as that is known without a wait; empty: nothing. Throws Error for other queues.
std::string failure_so_far(Queue& queue);

/// Calls `work` while `device` is the current one of the calling thread, for libraries that work on
/// that. Throws Error for a device that is not CUDA's, and what `work` throws.
void with_current_device(Device& device, const std::function<void()>& work);

/// The stream (cudaStream_t) of a queue of a CUDA device. Throws Error for other queues.
void* stream_of(const Queue& queue);

}  // namespace spillway::device
