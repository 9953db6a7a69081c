#include "device_messages.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "device_transfer.h"
#include "first_rank.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/device/cpu.h"
#include "spillway/device/cuda/cuda_backend.h"

namespace spillway::split {
namespace {

/// What LibTorch's default stream is called by CUDA.
constexpr void* kDefaultStream = nullptr;

/// No faster where larger, and memory that nothing else can use.
constexpr Bytes kMostPiece = 32_MiB;

/// The CPU where the GPU cannot be opened: all ranks hear of it then, and why.
std::unique_ptr<device::Device> opened(c10::Device gpu) {
  const auto index = static_cast<std::uint16_t>(gpu.has_index() ? gpu.index() : 0);
  try {
    return device::open_device({device::DeviceKind::kCuda, index},
                               std::array{device::cuda_backend()});
  } catch (const Error&) {
    return device::make_cpu_device();
  }
}

bool has_come_through(const device::Event& event) {
  return event.is_done() && event.wait().succeeded();
}

}  // namespace

class DeviceMessages::BetweenShards final : public transport::Transport {
 public:
  explicit BetweenShards(DeviceMessages& all)
      : Transport(all.shard(), all.job_.ranks() / all.ranks_of_shard_), all_(all) {}

  std::unique_ptr<transport::Notifier> make_notifier(
      std::optional<transport::Stream> stream) override {
    return all_.nccl_->make_notifier(stream);
  }
  [[noreturn]] void abort(const std::string& reason) override {
    all_.job_.abort(reason);
    std::abort();  // Not reached.
  }

 private:
  device::Event do_send(Rank to, transport::Tag tag, device::DeviceSpan bytes) override {
    all_.sent_ += bytes.size.count();
    return all_.nccl_->send(in_job(to), tag, bytes, all_.given_so_far());
  }
  device::Event do_receive(Rank from, transport::Tag tag, device::DeviceSpan bytes) override {
    return all_.nccl_->receive(in_job(from), tag, bytes, all_.given_so_far());
  }
  Rank in_job(Rank shard) const {
    return rank_in_job(all_.ranks_of_shard_, shard, all_.rank_of_shard());
  }

  DeviceMessages& all_;
};

DeviceMessages::DeviceMessages(transport::Transport& job, std::uint32_t ranks_of_shard,
                               const DeviceBytes& devices, Bytes (*least_paged)(c10::Device))
    : job_(job), ranks_of_shard_(ranks_of_shard), devices_(devices), least_paged_of_(least_paged) {}

DeviceMessages::~DeviceMessages() = default;

void DeviceMessages::start(c10::Device gpu, bool adds_up) {
  device_ = opened(gpu);
  try {
    nccl_ = transport::make_nccl_transport(job_, *device_);
  } catch (const transport::TransportError&) {
    throw;
  } catch (const Error& error) {
    if (job_.rank() == kFirst)
      log_info("tensors of GPUs go from rank to rank by way of the host: {}", error.what());
    return;
  }
  default_stream_ = device::queue_over_stream(*device_, kDefaultStream);
  agree_on_pieces(gpu);
  std::vector<std::vector<Rank>> groups(ranks_of_shard_);
  for (std::uint32_t rank = 0; rank < job_.ranks(); ++rank)
    groups[rank % ranks_of_shard_].emplace_back(rank);
  if (adds_up) sums_of_shards_ = nccl_->make_groups(groups);
  between_shards_ = std::make_unique<BetweenShards>(*this);
  is_on_.store(true, std::memory_order_release);
}

/// GPUs of several kinds have pages of several sizes.
void DeviceMessages::agree_on_pieces(c10::Device gpu) {
  at::globalContext().lazyInitDevice(gpu.type());
  made_storage(1, gpu);  // It is served from its first allocation on.
  const auto wait = [](const device::Event& event, Rank peer) {
    if (const device::Outcome outcome = event.wait(); !outcome.succeeded())
      throw transport::TransportError("rank {} is lost: {}", peer, outcome.error);
  };
  least_paged_ =
      Bytes(least_of_all(job_, kLeastPaged, kLeastOfAll, least_paged_of_(gpu).count(), wait));
  // Whole elements of every kind.
  constexpr std::uint64_t kUnit = 512;
  piece_ = std::min(Bytes(least_paged_.count() / 2 / kUnit * kUnit), kMostPiece);
  SPILLWAY_ASSERT(piece_ > Bytes());
}

void DeviceMessages::stop() {
  if (!is_on_.exchange(false)) return;
  between_shards_.reset();
  sums_of_shards_.reset();
  nccl_.reset();
  const std::lock_guard lock(mutex_);
  under_way_.clear();
  default_stream_.reset();
}

device::DeviceSpan DeviceMessages::span_of(const c10::Storage& storage) const {
  return {device_->id(), static_cast<std::byte*>(const_cast<void*>(storage.data())),
          Bytes(storage.nbytes())};
}

device::Event DeviceMessages::add_up(std::uint64_t number, device::DeviceSpan values,
                                     transport::SumElement element) {
  sent_ += values.size.count();
  return sums_of_shards_->all_reduce(number, values, element, given_so_far());
}

device::Event DeviceMessages::note(const c10::Storage& storage, device::Event event, bool comes) {
  const std::lock_guard lock(mutex_);
  forget_ended_locked();
  under_way_.push_back({storage.unsafeGetStorageImpl(), event, comes});
  return event;
}

void DeviceMessages::forget_ended_locked() {
  std::erase_if(under_way_, [](const UnderWay& one) { return has_come_through(one.event); });
  std::erase_if(used_, &has_come_through);
}

void DeviceMessages::begin_reading(const c10::Storage& storage) {
  const std::lock_guard lock(mutex_);
  read_.push_back(storage.unsafeGetStorageImpl());
}

void DeviceMessages::end_reading(const c10::Storage& storage) {
  const std::lock_guard lock(mutex_);
  read_.erase(std::find(read_.begin(), read_.end(), storage.unsafeGetStorageImpl()));
}

/// Also what is received comes behind the default stream: LibTorch hands out memory that earlier
/// work of it may still use.
device::Event DeviceMessages::begin(Rank peer_in_job, transport::Tag tag, bool sends,
                                    const c10::Storage& storage) {
  const device::DeviceSpan bytes = span_of(storage);
  if (!sends) return nccl_->receive(peer_in_job, tag, bytes, given_so_far());
  sent_ += bytes.size.count();
  return nccl_->send(peer_in_job, tag, bytes, given_so_far());
}

std::unique_ptr<DeviceMessages::Transfer> DeviceMessages::send(Rank to, transport::Tag tag,
                                                               const c10::Storage& storage) {
  return std::make_unique<Transfer>(*this, rank_in_job(ranks_of_shard_, shard(), to), tag, true,
                                    storage, storage.device(), Bytes(storage.nbytes()));
}

std::unique_ptr<DeviceMessages::Transfer> DeviceMessages::receive(Rank from, transport::Tag tag,
                                                                  c10::Device device, Bytes size) {
  return std::make_unique<Transfer>(*this, rank_in_job(ranks_of_shard_, shard(), from), tag, false,
                                    c10::Storage(), device, size);
}

std::unique_ptr<DeviceMessages::Transfer> DeviceMessages::send_to_shard(
    Rank shard, transport::Tag tag, const c10::Storage& storage) {
  return std::make_unique<Transfer>(*this, rank_in_job(ranks_of_shard_, shard, rank_of_shard()),
                                    tag, true, storage, storage.device(), Bytes(storage.nbytes()));
}

std::unique_ptr<DeviceMessages::Transfer> DeviceMessages::receive_from_shard(
    Rank shard, transport::Tag tag, const c10::Storage& into) {
  return std::make_unique<Transfer>(*this, rank_in_job(ranks_of_shard_, shard, rank_of_shard()),
                                    tag, false, into, into.device(), Bytes(into.nbytes()));
}

void DeviceMessages::write(runtime::RankFigures& figures) const {
  figures.gpu_sent_bytes = sent_;
  figures.gpu_staged_bytes = staged_;
}

bool DeviceMessages::has_begun(const device::Event& event) const {
  return event.is_done() || nccl_->moment_of(event).has_value();
}

std::string DeviceMessages::why_lost() {
  if (!is_on()) return {};
  std::vector<device::Event> used;
  {
    const std::lock_guard lock(mutex_);
    used = used_;
  }
  for (const device::Event& one : used)
    if (const device::Outcome outcome = one.wait(); !outcome.succeeded())
      return message("a message between GPUs was lost: {}", outcome.error);
  return {};
}

/// Lets the default stream wait for messages to and, where it is written, from the storage. False:
/// one of them has no place yet, or pieces to read.
bool DeviceMessages::follow(const c10::Storage& storage, bool is_written) {
  bool have_begun = true;
  const std::lock_guard lock(mutex_);
  forget_ended_locked();
  if (is_written)
    have_begun =
        std::find(read_.begin(), read_.end(), storage.unsafeGetStorageImpl()) == read_.end();
  std::erase_if(under_way_, [&](const UnderWay& one) {
    if (one.storage != storage.unsafeGetStorageImpl() || !(one.comes || is_written)) return false;
    const auto moment = nccl_->moment_of(one.event);
    if (moment) default_stream_->wait(*moment);
    const bool is_over = moment || one.event.is_done();
    if (is_over && one.comes) used_.push_back(one.event);
    have_begun = have_begun && is_over;
    return is_over;
  });
  return have_begun;
}

void DeviceMessages::before_read(const c10::Storage& storage) {
  if (!is_on() || !storage || !storage.device().is_cuda()) return;
  SPILLWAY_ASSERT(follow(storage, /*is_written=*/false));
}

c10::Storage DeviceMessages::before_write(const c10::Storage& storage) {
  if (!is_on() || !storage || !storage.device().is_cuda()) return storage;
  return follow(storage, /*is_written=*/true) ? storage : devices_.copy_of(storage);
}

}  // namespace spillway::split
