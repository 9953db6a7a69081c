#include "group.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "../runtime/emulation.h"

namespace spillway::emulated {
namespace {

// What one communicator does on one stream at the end of a group.
struct Batch {
  std::shared_ptr<ncclComm> comm;
  cudaStream_t stream = nullptr;
  std::uint64_t turn = 0;
  std::vector<std::unique_ptr<Operation>> operations;
};

struct Group {
  int depth = 0;
  std::vector<std::unique_ptr<Operation>> operations;
  std::vector<ncclComm_t*> joining;
};

Group& group() {
  thread_local Group mine;
  return mine;
}

// Moves what can be moved. To and from each peer the moves go one after the other.
enum class Progress : std::uint8_t { kNone, kSome, kDone };
Progress make_progress(const ncclComm& comm, std::vector<Move*>& moves) {
  std::array<bool, kMostRanks> sending{};
  std::array<bool, kMostRanks> receiving{};
  Progress progress = Progress::kNone;
  const auto mine = static_cast<std::size_t>(comm.rank());
  for (Move* move : moves) {
    const auto peer = static_cast<std::size_t>(move->peer);
    bool& busy = move->sends ? sending[peer] : receiving[peer];
    if (std::exchange(busy, true)) continue;
    SharedBlock& block = comm.block();
    const std::size_t moved = move->sends ? block.rings[mine][peer].push(move->data, move->left)
                                          : block.rings[peer][mine].pop(move->data, move->left);
    move->data += moved;
    move->left -= moved;
    if (moved > 0) progress = Progress::kSome;
  }
  std::erase_if(moves, [](const Move* move) { return move->left == 0; });
  return moves.empty() ? Progress::kDone : progress;
}

// All of a batch; an abort leaves its results as they are.
void move_all(const Batch& batch) {
  std::vector<Move*> moves;
  for (const auto& operation : batch.operations) {
    for (Move& move : operation->moves) {
      if (move.left > 0) moves.push_back(&move);
    }
  }
  if (moves.empty()) return;
  SharedBlock& block = batch.comm->block();
  block.wait_until([&] {
    for (;;) {
      const Progress progress = make_progress(*batch.comm, moves);
      if (progress != Progress::kNone) block.tell();
      if (progress != Progress::kSome) return progress == Progress::kDone;
    }
  });
}

void run(void* argument) {
  const std::unique_ptr<Batch> batch(static_cast<Batch*>(argument));
  batch->comm->begin_turn(batch->turn);
  for (const auto& operation : batch->operations) {
    if (operation->before) operation->before();
  }
  move_all(*batch);
  const bool aborted = batch->comm->block().aborted.load() != 0;
  for (const auto& operation : batch->operations) {
    if (operation->behind && !aborted) operation->behind();
  }
  batch->comm->end_turn();
}

void launch(std::unique_ptr<Batch> batch) {
  const cudaStream_t stream = batch->stream;
  const char* name =
      batch->operations.size() == 1 ? batch->operations.front()->name : "a group of NCCL";
  emu_cuda_begin(stream);
  for (const auto& operation : batch->operations) {
    for (const auto& use : operation->uses) {
      emu_cuda_check_fixed(use.address, operation->name);
      emu_cuda_use(stream, use.address, use.bytes, use.writes ? 1 : 0, operation->name);
    }
  }
  batch->turn = batch->comm->take_turn();
  emu_cuda_enqueue(stream, name, run, batch.release());
}

void launch_all(std::vector<std::unique_ptr<Operation>> operations) {
  std::vector<std::unique_ptr<Batch>> batches;
  for (auto& operation : operations) {
    auto at = std::find_if(batches.begin(), batches.end(), [&](const auto& batch) {
      return batch->comm == operation->comm && batch->stream == operation->stream;
    });
    if (at == batches.end()) {
      batches.push_back(std::make_unique<Batch>());
      at = std::prev(batches.end());
      (*at)->comm = operation->comm;
      (*at)->stream = operation->stream;
    }
    (*at)->operations.push_back(std::move(operation));
  }
  for (auto& batch : batches) launch(std::move(batch));
}

// Submits all of it; communicators that do not block are busy with it for a while.
ncclResult_t end_group() {
  std::vector<std::unique_ptr<Operation>> operations = std::exchange(group().operations, {});
  std::vector<std::shared_ptr<ncclComm>> comms;
  for (const auto& operation : operations) comms.push_back(operation->comm);
  launch_all(std::move(operations));
  ncclResult_t result = ncclSuccess;
  for (const auto& comm : comms)
    if (comm->leave_in_progress() == ncclInProgress) result = ncclInProgress;
  return result;
}

}  // namespace

ncclResult_t submit(std::unique_ptr<Operation> operation) {
  if (operation->comm->is_in_progress())
    return refuse(ncclInvalidUsage, std::string(operation->name) + ": another call is in progress");
  group().operations.push_back(std::move(operation));
  return group().depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t join(ncclComm_t* comm, const std::string& name, int ranks, int rank, bool blocks) {
  const ncclResult_t made = make_communicator(comm, name, ranks, rank);
  if (made != ncclSuccess) return made;
  if (!blocks) {
    (*comm)->stop_blocking();
    return (*comm)->leave_in_progress();
  }
  if (group().depth > 0) {
    group().joining.push_back(comm);
    return ncclSuccess;
  }
  return (*comm)->meet() ? ncclSuccess : ncclRemoteError;
}

}  // namespace spillway::emulated

using namespace spillway::emulated;

extern "C" {

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group().depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group().depth > 0) return ncclSuccess;
  for (ncclComm_t* comm : std::exchange(group().joining, {})) {
    if (!(*comm)->meet()) return ncclRemoteError;
  }
  return end_group();
}
}
