// Takes the place of store.cpp in a build with SPILLWAY_WITH_IO_URING=OFF.
#include "spillway/base/error.h"
#include "spillway/swap/spill_store_factory.h"
#include "store/io_uring/factory.h"

namespace spillway::swap {

std::string why_no_io_uring() {
  return "io_uring is not part of this build (configure with -DSPILLWAY_WITH_IO_URING=ON)";
}

std::unique_ptr<SpillStore> make_io_uring_store(std::unique_ptr<ExtentFile>, std::size_t,
                                                std::shared_ptr<Notifier>) {
  throw UnsupportedError(why_no_io_uring());
}

}  // namespace spillway::swap
