#pragma once

#include <driver_types.h>

#include <cstddef>

/// What the emulated libcudart.so.13 has beyond CUDA, for the emulated operators and for tests; the
/// product never sees it. Exported under the version node EMULATION. Functions may be called from
/// any thread; what they refuse ends the process with one sentence.
extern "C" {

/// Runs `work(argument)` on the worker of the stream, behind all that it was given before. `what`
/// names it in errors and must stay valid; what it touches is told by emu_cuda_begin and
/// emu_cuda_use beforehand.
void emu_cuda_enqueue(cudaStream_t stream, const char* what, void (*work)(void*), void* argument);

/// Whether the stream is captured into a graph.
int emu_cuda_captures(cudaStream_t stream);

/// As emu_cuda_enqueue, of a stream that is captured: `work(argument)` runs at each launch of the
/// graph, and `drop(argument)` once, when it never will again.
void emu_cuda_capture(cudaStream_t stream, const char* what, void (*work)(void*), void* argument,
                      void (*drop)(void*));

/// Waits until the stream is idle, on behalf of the emulation: the happens-before check learns
/// nothing by it.
void emu_cuda_drain(cudaStream_t stream);

/// An operator begins on the stream: the implicit order of legacy streams, and one more piece of
/// work for the check.
void emu_cuda_begin(cudaStream_t stream);

/// The operator that has begun last on the stream reads (or writes) these bytes. Dies where the
/// check finds a use that it is not ordered with, or where device memory is not there. Ignores
/// pageable memory. `what` is copied.
void emu_cuda_use(cudaStream_t stream, const void* address, size_t bytes, int writes,
                  const char* what);

/// A drive moves these bytes of a device's memory for the calling thread, which waits: `work` moves
/// them, and writes there unless `writes` is 0. It begins with what the host knows, and the host
/// knows it when this returns. Dies as emu_cuda_use. 0, and nothing is done, where the memory is
/// not a device's or was not made for other devices (gpuDirectRDMACapable).
int emu_cuda_drive(const void* address, size_t bytes, int writes, const char* what,
                   void (*work)(void*), void* argument);

/// What the calling thread runs now, for the message of a fault; null: nothing. It must stay valid.
void emu_cuda_set_running(const char* what);

/// Dies with `what` and the address where the bytes are in the devices' addresses, but not mapped
/// memory.
void emu_cuda_check(const void* address, size_t bytes, const char* what);

/// Whether the address is one of a device.
int emu_cuda_is_device(const void* address);

/// Dies with `what` where the address is one that the program itself maps memory at (cuMemMap), and
/// EMU_NCCL_FIXED is set.
void emu_cuda_check_fixed(const void* address, const char* what);

/// A host function that runs in the place of the kernel registered under this mangled name: at the
/// launch, on the launching thread, when the stream is idle. The check does not see what it
/// touches.
void emu_cuda_add_kernel(const char* name,
                         void (*kernel)(const unsigned grid[3], const unsigned block[3],
                                        void** arguments));

/// The same, but asynchronous and seen by the check: `launcher` runs at the launch, on the
/// launching thread. It copies the arguments, tells what they touch by emu_cuda_use, and gives the
/// work to emu_cuda_enqueue.
void emu_cuda_add_launcher(const char* name,
                           void (*launcher)(cudaStream_t stream, const unsigned grid[3],
                                            const unsigned block[3], void** arguments));

/// From now on the device answers everything with this error, as after an illegal access of a
/// kernel; the functions of the host that wait in its streams are not called.
void emu_cuda_lose(int device, cudaError_t error);

/// What CUDA does by a function at exit, which the first call of it registers here, too: from now
/// on all devices answer cudaErrorCudartUnloading.
void emu_cuda_deinitialize();

/// Bytes of the device's memory that are allocated, chunks of virtual memory included.
size_t emu_cuda_used(int device);

/// How often the function of CUDA of this name was called in this process.
unsigned long long emu_cuda_calls(const char* name);
}
