// The functions of NCCL that move and reduce. Results do not depend on timing: sums are in the
// order of ranks.
#include <cstring>

#include "group.h"
#include "reduction.h"

using namespace spillway::emulated;

namespace {

struct Call {
  ncclComm_t comm;
  cudaStream_t stream;
  const char* name;
};

std::unique_ptr<Operation> operation_of(const Call& call) {
  auto operation = std::make_unique<Operation>();
  operation->comm = call.comm->shared_from_this();
  operation->stream = call.stream;
  operation->name = call.name;
  return operation;
}

char* bytes_at(const void* address, std::size_t offset) {
  return static_cast<char*>(const_cast<void*>(address)) + offset;
}

ncclResult_t check(const Call& call, ncclDataType_t type, int root) {
  if (size_of(type) == 0) {
    return refuse(ncclInvalidArgument,
                  std::string(call.name) + ": type " + std::to_string(type) + " is not emulated");
  }
  if (root < 0 || root >= call.comm->ranks()) {
    return refuse(ncclInvalidArgument, std::string(call.name) + ": rank " + std::to_string(root) +
                                           " of " + std::to_string(call.comm->ranks()));
  }
  return ncclSuccess;
}

// With one rank: values go to it, or come from it.
ncclResult_t exchange(const Call& call, const void* values, std::size_t count, ncclDataType_t type,
                      int peer, bool sends) {
  const ncclResult_t checked = check(call, type, peer);
  if (checked != ncclSuccess) return checked;
  auto operation = operation_of(call);
  const std::size_t bytes = count * size_of(type);
  operation->uses.push_back({values, bytes, !sends});
  operation->moves.push_back({peer, sends, bytes_at(values, 0), bytes});
  return submit(std::move(operation));
}

// A reduction: each rank that is to have a result gets that part of everyone's values, and combines
// them.
struct Reduction {
  const void* from;
  void* to;
  std::size_t count;  // Of a result.
  ncclDataType_t type;
  ncclRedOp_t how;
  bool scatters;  // Each rank's result is a part of its own.
  int root;       // -1: all have a result.
};

ncclResult_t reduce(const Call& call, const Reduction& what) {
  const ncclResult_t checked = check(call, what.type, what.root < 0 ? 0 : what.root);
  if (checked != ncclSuccess) return checked;
  if (what.how < ncclSum || what.how > ncclAvg) {
    return refuse(ncclInvalidArgument, std::string(call.name) + ": reduction " +
                                           std::to_string(what.how) + " is not emulated");
  }
  const int ranks = call.comm->ranks();
  const int me = call.comm->rank();
  const std::size_t bytes = what.count * size_of(what.type);
  const auto part = [&](int rank) {
    return bytes_at(what.from, what.scatters ? static_cast<std::size_t>(rank) * bytes : 0);
  };
  const auto has_result = [&](int rank) { return what.root < 0 || what.root == rank; };

  auto operation = operation_of(call);
  operation->uses.push_back(
      {what.from, what.scatters ? bytes * static_cast<std::size_t>(ranks) : bytes, false});
  if (has_result(me)) operation->uses.push_back({what.to, bytes, true});
  operation->parts.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    auto& theirs = operation->parts[static_cast<std::size_t>(rank)];
    if (has_result(me)) theirs.resize(bytes);
    if (rank == me) continue;
    if (has_result(rank)) operation->moves.push_back({rank, true, part(rank), bytes});
    if (has_result(me)) operation->moves.push_back({rank, false, theirs.data(), bytes});
  }
  if (has_result(me)) {
    // The result may lie where the values are, so theirs are copied first.
    operation->before = [mine = part(me), me, bytes, all = operation.get()] {
      std::memcpy(all->parts[static_cast<std::size_t>(me)].data(), mine, bytes);
    };
    operation->behind = [what, ranks, bytes, all = operation.get()] {
      char* sum = all->parts.front().data();
      for (std::size_t rank = 1; rank < all->parts.size(); ++rank) {
        combine(sum, all->parts[rank].data(), what.count, what.type, what.how);
      }
      if (what.how == ncclAvg) divide(sum, what.count, what.type, ranks);
      std::memcpy(what.to, sum, bytes);
    };
  }
  return submit(std::move(operation));
}

}  // namespace

extern "C" {

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return exchange({comm, stream, "ncclSend"}, from, count, type, peer, true);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return exchange({comm, stream, "ncclRecv"}, to, count, type, peer, false);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream) {
  return reduce({comm, stream, "ncclAllReduce"}, {from, to, count, type, how, false, -1});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t how, int root, ncclComm_t comm, cudaStream_t stream) {
  return reduce({comm, stream, "ncclReduce"}, {from, to, count, type, how, false, root});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream) {
  return reduce({comm, stream, "ncclReduceScatter"}, {from, to, count, type, how, true, -1});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{comm, stream, "ncclAllGather"};
  const ncclResult_t checked = check(call, type, 0);
  if (checked != ncclSuccess) return checked;
  const std::size_t bytes = count * size_of(type);
  const auto place = [&](int rank) { return bytes_at(to, static_cast<std::size_t>(rank) * bytes); };
  char* mine = place(comm->rank());
  auto operation = operation_of(call);
  operation->uses.push_back({from, bytes, false});
  operation->uses.push_back({to, bytes * static_cast<std::size_t>(comm->ranks()), true});
  operation->before = [=] { std::memmove(mine, from, bytes); };
  for (int rank = 0; rank < comm->ranks(); ++rank) {
    if (rank == comm->rank()) continue;
    operation->moves.push_back({rank, true, mine, bytes});
    operation->moves.push_back({rank, false, place(rank), bytes});
  }
  return submit(std::move(operation));
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{comm, stream, "ncclBroadcast"};
  const ncclResult_t checked = check(call, type, root);
  if (checked != ncclSuccess) return checked;
  const std::size_t bytes = count * size_of(type);
  auto operation = operation_of(call);
  operation->uses.push_back({to, bytes, true});
  if (comm->rank() == root) {
    operation->uses.push_back({from, bytes, false});
    operation->before = [=] { std::memmove(to, from, bytes); };
    for (int rank = 0; rank < comm->ranks(); ++rank) {
      if (rank != root) operation->moves.push_back({rank, true, bytes_at(to, 0), bytes});
    }
  } else {
    operation->moves.push_back({root, false, bytes_at(to, 0), bytes});
  }
  return submit(std::move(operation));
}

ncclResult_t ncclBcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}
}
