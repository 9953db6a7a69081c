#pragma once

#include <memory>
#include <string>

#include "context.h"
#include "spillway/device/direct_files.h"

namespace spillway::device {

/// A file that `context`'s GPU reads and writes by cuFile. The library is looked for at run time,
/// and opened with the first file.
DirectFileIo::Opened open_cuda_file(std::shared_ptr<CudaContext> context, int descriptor,
                                    DirectFiles asked);

}  // namespace spillway::device
