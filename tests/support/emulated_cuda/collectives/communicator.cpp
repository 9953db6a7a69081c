#include "communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace spillway::emulated {
namespace {

int device_of_thread() {
  int device = 0;
  cudaGetDevice(&device);
  return device;
}

struct Communicators {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<ncclComm>> all;
};

Communicators& communicators() {
  static auto* living = new Communicators;
  return *living;
}

}  // namespace

std::string& last_nccl_text() {
  thread_local std::string text;
  return text;
}

ncclResult_t refuse(ncclResult_t error, std::string text) {
  last_nccl_text() = std::move(text);
  return error;
}

ncclResult_t make_communicator(ncclComm_t* comm, const std::string& name, int ranks, int rank) {
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) {
    return refuse(ncclInvalidArgument,
                  "rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
                      "; the emulated NCCL has up to " + std::to_string(kMostRanks));
  }
  SharedBlock* block = SharedBlock::open(name);
  if (block == nullptr) return refuse(ncclSystemError, "no shared memory for " + name);
  auto made = std::make_shared<ncclComm>(block, name, ranks, rank);
  *comm = made.get();
  const std::lock_guard lock(communicators().mutex);
  communicators().all.emplace(made.get(), std::move(made));
  return ncclSuccess;
}

}  // namespace spillway::emulated

using namespace spillway::emulated;

ncclComm::ncclComm(SharedBlock* block, std::string name, int ranks, int rank)
    : block_(block),
      name_(std::move(name)),
      ranks_(ranks),
      rank_(rank),
      device_(device_of_thread()) {
  // The last one to join takes the name away, so that nothing is left behind whatever happens
  // later.
  if (block_->joined.fetch_add(1) + 1 == ranks_) SharedBlock::forget(name_);
  block_->tell();
}

ncclComm::~ncclComm() {
  if (splitting_.joinable()) splitting_.join();
  SharedBlock::close(block_);
}

bool ncclComm::meet() {
  return block_->wait_until([this] { return block_->joined.load() == ranks_; });
}

std::uint64_t ncclComm::take_turn() {
  const std::lock_guard lock(mutex_);
  return taken_++;
}

void ncclComm::begin_turn(std::uint64_t turn) {
  std::unique_lock lock(mutex_);
  turned_.wait(lock, [&] { return turn_ == turn; });
}

void ncclComm::end_turn() {
  const std::lock_guard lock(mutex_);
  ++turn_;
  turned_.notify_all();
}

ncclResult_t ncclComm::leave_in_progress() {
  if (blocks_) return ncclSuccess;
  is_in_progress_ = true;
  return ncclInProgress;
}

ncclResult_t ncclComm::ask_for_progress() {
  if (block_->aborted.load() != 0) return ncclRemoteError;
  if (is_splitting_ || block_->joined.load() < ranks_) return ncclInProgress;
  // Whoever asks once only is found out.
  return std::exchange(is_in_progress_, false) ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclComm::begin_split(int color, int key, ncclComm_t* part) {
  if (splitting_.joinable()) splitting_.join();
  *part = nullptr;
  is_splitting_ = true;
  splitting_ = std::thread([this, color, key, part] {
    cudaSetDevice(device_);
    ncclComm_t made = nullptr;
    split(color, key, &made);
    if (made != nullptr) made->stop_blocking();
    *part = made;
    is_splitting_ = false;
  });
  return leave_in_progress();
}

ncclResult_t ncclComm::split(int color, int key, ncclComm_t* part) {
  *part = nullptr;
  const int round = splits_++;
  // The board is free when all have read what stood there in the round before.
  if (!block_->wait_until([&] { return block_->read.load() >= round * ranks_; }))
    return ncclRemoteError;
  block_->color[static_cast<std::size_t>(rank_)] = color;
  block_->key[static_cast<std::size_t>(rank_)] = key;
  block_->said.fetch_add(1);
  block_->tell();
  if (!block_->wait_until([&] { return block_->said.load() >= (round + 1) * ranks_; }))
    return ncclRemoteError;
  std::vector<std::pair<int, int>> members;  // Key and rank.
  for (int other = 0; other < ranks_; ++other) {
    const auto i = static_cast<std::size_t>(other);
    if (block_->color[i] == color) members.emplace_back(block_->key[i], other);
  }
  block_->read.fetch_add(1);
  block_->tell();
  if (color == kNcclNoColor) return ncclSuccess;
  std::sort(members.begin(), members.end());
  const auto mine = std::find(members.begin(), members.end(), std::pair(key, rank_));
  const std::string name = name_ + "_" + std::to_string(round) + "_" + std::to_string(color);
  const ncclResult_t made = make_communicator(part, name, static_cast<int>(members.size()),
                                              static_cast<int>(mine - members.begin()));
  if (made != ncclSuccess) return made;
  return (*part)->meet() ? ncclSuccess : ncclRemoteError;
}

extern "C" {

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::shared_ptr<ncclComm> held;
  const std::lock_guard lock(communicators().mutex);
  const auto at = communicators().all.find(comm);
  if (at == communicators().all.end())
    return refuse(ncclInvalidArgument, "the communicator was destroyed before");
  // Its last holder may be work in streams, or this function, which waits for its split then.
  held = std::move(at->second);
  communicators().all.erase(at);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->block().aborted = 1;
  comm->block().tell();
  return ncclCommDestroy(comm);
}

// Work may still be under way: ncclCommDestroy does not wait for it, either.
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm->leave_in_progress(); }

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, void*) {
  if (comm->is_in_progress())
    return refuse(ncclInvalidUsage, "ncclCommSplit: another call is in progress");
  return comm->blocks() ? comm->split(color, key, part) : comm->begin_split(color, key, part);
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* ranks) {
  *ranks = comm->ranks();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank();
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  *device = comm->device();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->ask_for_progress();
  return ncclSuccess;
}
}
