// How fast pages leave a GPU for host memory and come back by way of the store that the pager has,
// for `./test.sh --gpu` to compare with a bare loop of copies.
//
//   spillway_gpu_store_rates PAGE_MIB PAGES ROUNDS
//
// Prints one line of JSON: medians in bytes per second.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/device/cuda/cuda_backend.h"
#include "spillway/swap/spill_store_factory.h"

namespace {

using namespace spillway;

constexpr std::size_t kTurns = 8;  // Of all pages in a round: its begin and its end weigh little.

swap::SpillStoreOptions options_of(std::shared_ptr<device::Device> device, Bytes page,
                                   std::size_t pages) {
  swap::SpillStoreOptions options;
  options.kind = swap::StoreKind::kRam;
  options.ram_capacity = page;
  options.host_tier = page * (2 * pages);  // Some of it stages what goes past it.
  options.extent_size = page;
  options.device = std::move(device);
  return options;
}

class Pages {
 public:
  Pages(Bytes page, std::size_t pages)
      : page_(page),
        device_(device::open_device({device::DeviceKind::kCuda, 0},
                                    std::array{device::cuda_backend()})),
        memory_(device_->allocate(page * pages)),
        store_(swap::make_spill_store(options_of(device_, page, pages)).store) {
    for (std::size_t i = 0; i < pages; ++i)
      extents_.push_back(store_->reserve_extent(swap::StoreTier::kHost).value());
  }

  double rate(swap::Direction direction) {
    const std::size_t most = std::min(extents_.size(), store_->queue_depth());
    const std::size_t count = kTurns * extents_.size();
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t sent = 0; sent < count || store_->in_flight() > 0;) {
      for (; sent < count && store_->in_flight() < most; ++sent) submit(direction, sent);
      results_.clear();
      store_->reap(results_, std::chrono::seconds(1));
      for (const swap::TransferResult& result : results_)
        if (result.error != 0) throw Error("{}", result.detail);
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return static_cast<double>((page_ * count).count()) / passed.count();
  }

 private:
  void submit(swap::Direction direction, std::size_t number) {
    const std::size_t i = number % extents_.size();
    store_->submit(
        {direction, extents_[i], memory_.span().data + i * page_.count(), page_.count()});
  }

  const Bytes page_;
  const std::shared_ptr<device::Device> device_;
  const device::DeviceMemory memory_;
  const std::unique_ptr<swap::SpillStore> store_;
  std::vector<swap::ExtentId> extents_;
  std::vector<swap::TransferResult> results_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

void measure(char** words) {
  Pages pages(1_MiB * std::strtoul(words[1], nullptr, 10), std::strtoul(words[2], nullptr, 10));
  std::vector<double> out, in;
  for (int i = std::atoi(words[3]); i > 0; --i) {
    out.push_back(pages.rate(swap::Direction::kWrite));
    in.push_back(pages.rate(swap::Direction::kRead));
  }
  std::printf("{\"out\": %.6g, \"in\": %.6g}\n", median(std::move(out)), median(std::move(in)));
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) {
    std::fputs("usage: PAGE_MIB PAGES ROUNDS\n", stderr);
    return 2;
  }
  try {
    measure(words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
