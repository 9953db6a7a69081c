#pragma once

#include <string>
#include <vector>

#include "findings.h"
#include "installation.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/transport/nccl/nccl_transport.h"

namespace spillway::cli {

/// What opening a GPU shows.
struct OpenedGpu {
  Bytes free;           ///< As a program would find it.
  std::string refusal;  ///< Why it cannot be opened; empty: it can.
};

/// Findings about the GPUs that programs may use: a line for CUDA, one for each, and the budget
/// that each would have by `settings`; or a single one with the reason why there are none. `opened`
/// has one entry for each device. Free of I/O.
std::vector<Finding> check_cuda(const device::CudaFacts& facts,
                                const std::vector<OpenedGpu>& opened,
                                const runtime::Settings& settings);

/// What says that a program is to use GPUs, as the end of a sentence: a budget, or one of its
/// `arguments` ("cuda", "--device=cuda:1"). Empty: nothing. Free of I/O.
std::string wish_for_gpus(const runtime::Settings& settings,
                          const std::vector<std::string>& arguments);

/// Makes a problem of the finding that there are no GPUs, where something says that there should
/// be. Free of I/O.
void expect_gpus(Finding& none, const std::string& wish);

/// Why budgets of `settings` cannot be kept on these GPUs, as far as that is known before one is
/// opened; empty: they can, or there are none. Free of I/O.
std::string objection_to_budgets(const device::CudaFacts& facts, const runtime::Settings& settings);

/// Where the core for that LibTorch ("2.11.0") has no part for CUDA, that runs would leave the GPUs
/// to LibTorch. Nothing where it has one, or where there is no core, which is told elsewhere. Free
/// of I/O.
std::vector<Finding> check_cuda_part(const std::string& torch_version, const Installation& here);

/// Whether GPUs read and write spill files themselves. `reason`: why not; empty: they do. Free of
/// I/O.
Finding check_direct_files(const std::string& reason);

/// What several GPUs speak to one another with. `gpus`: how many there are. Free of I/O.
Finding check_nccl(const transport::NcclFacts& facts, std::size_t gpus);

}  // namespace spillway::cli
