#include "shim.h"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

namespace spillway::transport::mpi {
namespace {

// What one process has of MPI. Never destroyed: the job ends in a function at exit, which may run
// after the destructors of this library, where MPI was opened once main had begun.
MPI_Comm channels[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
auto& requests = *new std::vector<MPI_Request>();
auto& ids = *new std::vector<std::uint64_t>();  // Of each request.
auto& statuses = *new std::vector<MPI_Status>();
auto& places = *new std::vector<int>();
auto& ends = *new std::vector<ShimEnd>();

ThreadSupport threads_of(int level) {
  if (level == MPI_THREAD_MULTIPLE) return ThreadSupport::kMultiple;
  if (level == MPI_THREAD_SERIALIZED) return ThreadSupport::kSerialized;
  return level == MPI_THREAD_FUNNELED ? ThreadSupport::kFunneled : ThreadSupport::kSingle;
}

MPI_Comm comm_of(Channel channel) { return channels[static_cast<int>(channel)]; }

std::int32_t find_state(ShimState* state) {
  int error = MPI_Initialized(&state->is_initialised);
  if (error == MPI_SUCCESS) error = MPI_Finalized(&state->is_finalised);
  if (error != MPI_SUCCESS || state->is_initialised == 0 || state->is_finalised != 0) return error;
  int level = MPI_THREAD_SINGLE;
  error = MPI_Query_thread(&level);
  state->threads = threads_of(level);
  return error;
}

std::int32_t initialise(ThreadSupport* threads) {
  int level = MPI_THREAD_SINGLE;
  const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  *threads = threads_of(level);
  return error;
}

std::int32_t open(ShimWorld* world) {
  int error = MPI_SUCCESS;
  for (MPI_Comm& channel : channels) {
    if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &channel);
    if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(channel, MPI_ERRORS_RETURN);
  }
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(channels[0], &world->rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(channels[0], &world->ranks);
  if (error != MPI_SUCCESS) return error;
  void* most = nullptr;
  int is_known = 0;
  error = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &is_known);
  constexpr int kLeast = 32767;  // By the standard.
  world->most_tag = is_known != 0 ? *static_cast<int*>(most) : kLeast;
  return error;
}

std::int32_t gather(const void* mine, std::int32_t bytes, void* all) {
  return MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, channels[0]);
}

std::int32_t find_ranks_here(std::uint8_t* is_here) {
  MPI_Comm host = MPI_COMM_NULL;
  int error = MPI_Comm_split_type(channels[0], MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  if (error != MPI_SUCCESS) return error;
  MPI_Group here = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  int count = 0;
  error = MPI_Comm_group(host, &here);
  if (error == MPI_SUCCESS) error = MPI_Comm_group(channels[0], &world);
  if (error == MPI_SUCCESS) error = MPI_Group_size(here, &count);
  if (error != MPI_SUCCESS) return error;
  std::vector<int> places_here(static_cast<std::size_t>(count)), ranks(places_here.size());
  std::iota(places_here.begin(), places_here.end(), 0);
  error = MPI_Group_translate_ranks(here, count, places_here.data(), world, ranks.data());
  for (const int rank : ranks) is_here[rank] = 1;
  MPI_Group_free(&here);
  MPI_Group_free(&world);
  MPI_Comm_free(&host);
  return error;
}

std::int32_t keep(std::int32_t error, MPI_Request request, std::uint64_t id) {
  if (error != MPI_SUCCESS) return error;
  requests.push_back(request);
  ids.push_back(id);
  return MPI_SUCCESS;
}

std::int32_t send(std::uint64_t id, Channel channel, std::int32_t to, std::int32_t tag,
                  const void* bytes, std::int32_t count, std::int32_t is_synchronous) {
  MPI_Request request = MPI_REQUEST_NULL;
  const auto start = is_synchronous != 0 ? &MPI_Issend : &MPI_Isend;
  const int error = start(bytes, count, MPI_BYTE, to, tag, comm_of(channel), &request);
  return keep(error, request, id);
}

std::int32_t receive(std::uint64_t id, Channel channel, std::int32_t from, std::int32_t tag,
                     void* bytes, std::int32_t count) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int peer = from == kAnyRank ? MPI_ANY_SOURCE : from;
  const int error = MPI_Irecv(bytes, count, MPI_BYTE, peer, tag, comm_of(channel), &request);
  return keep(error, request, id);
}

/// Forgets the requests that MPI has made null.
void forget_ended() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == MPI_REQUEST_NULL) continue;
    requests[kept] = requests[i];
    ids[kept++] = ids[i];
  }
  requests.resize(kept);
  ids.resize(kept);
}

std::int32_t progress(const ShimEnd** ended, std::int32_t* count) {
  *count = 0;
  statuses.resize(requests.size());
  places.resize(requests.size());
  ends.clear();
  int found = 0;
  const int error = MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &found,
                                 places.data(), statuses.data());
  if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) return error;
  if (found == MPI_UNDEFINED || found == 0) return MPI_SUCCESS;
  for (std::size_t i = 0; i < static_cast<std::size_t>(found); ++i) {
    int bytes = 0;
    const int one = error == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;
    if (one == MPI_SUCCESS) MPI_Get_count(&statuses[i], MPI_BYTE, &bytes);
    ends.push_back({ids[static_cast<std::size_t>(places[i])],
                    static_cast<std::uint64_t>(std::max(bytes, 0)), statuses[i].MPI_SOURCE, one});
  }
  *ended = ends.data();
  *count = found;
  forget_ended();
  return MPI_SUCCESS;
}

std::int32_t close(std::int32_t is_ours) {
  for (MPI_Request& request : requests) {
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  requests.clear();
  ids.clear();
  for (MPI_Comm& channel : channels)
    if (channel != MPI_COMM_NULL) MPI_Comm_free(&channel);
  return is_ours != 0 ? MPI_Finalize() : MPI_SUCCESS;
}

void abort(std::int32_t code) { MPI_Abort(MPI_COMM_WORLD, code); }

void describe_error(std::int32_t code, char* text, std::int32_t room) {
  char whole[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, whole, &length) != MPI_SUCCESS) length = 0;
  std::snprintf(text, static_cast<std::size_t>(room), "%s (code %d)", length > 0 ? whole : "error",
                code);
}

constexpr Shim kShim = {find_state, initialise, open,  gather, find_ranks_here, send,
                        receive,    progress,   close, abort,  describe_error};

}  // namespace

extern "C" __attribute__((visibility("default"))) const Shim* spillway_mpi_shim_1() {
  return &kShim;
}

}  // namespace spillway::transport::mpi
