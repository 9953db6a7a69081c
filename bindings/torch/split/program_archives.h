#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstddef>
#include <string_view>

#include "absent_bytes.h"
#include "archive_exchange.h"
#include "program_memory.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/pipeline/ownership/directory.h"
#include "spillway/runtime/runtime.h"
#include "spillway/transport/transport.h"
#include "staged_bytes.h"
#include "storage_table.h"

namespace spillway::split {

/// Archives that the program reads and writes: the first rank gets the bytes of what it writes,
/// from whoever holds them; in the archives of others AbsentBytes stand for them. The program's
/// thread, where nothing else is said.
class ProgramArchives {
 public:
  /// All outlive it.
  ProgramArchives(runtime::Runtime& runtime, transport::Transport& transport, pipeline::Job& job,
                  StorageTable& storages, const pipeline::Directory& directory,
                  ProgramMemory& memory, const DeviceBytes& devices)
      : transport_(transport),
        runtime_(runtime),
        job_(job),
        storages_(storages),
        directory_(directory),
        memory_(memory),
        devices_(devices),
        exchange_(runtime, transport, job, devices) {}

  /// Where the bytes of a storage for an archive are to be read. Until the next call.
  const void* bytes_of(pipeline::StorageOrdinal ordinal, const void* memory, std::size_t size);
  /// The same for a tensor over such a storage. It is on the host.
  const at::Tensor& tensor_of(pipeline::StorageOrdinal ordinal, const at::Tensor& tensor);
  /// See AbsentBytes. Any thread.
  std::size_t zeroes_at_end_of(const void* memory, std::size_t size) const noexcept {
    return absent_.zeroes_at_end_of(memory, size);
  }
  /// The program goes on with another call: the first rank gets what it is to get before.
  void before_call() {
    if (exchange_.owes_any()) exchange_.wait_for_all();
  }
  void wait_for_all() { exchange_.wait_for_all(); }  ///< When the program has ended.
  /// The memory at that address is about to be freed. Any thread; `is_programs`: the program's.
  void ended(const void* address, bool is_programs) noexcept;
  void stop() noexcept { exchange_.stop(); }

  /// A record of an archive has been read into memory. Any thread; `is_programs`: the program's.
  /// Throws IoError.
  void record_read(const c10::DataPtr& memory, std::size_t size, bool is_programs);
  /// What was loaded and the split program has not used is another thread's as well. On that.
  void fill_for_other_thread(c10::StorageImpl& storage);
  /// An operator reads memory that is not LibTorch's: ends the job where absent bytes are there.
  void check_mapped(const c10::StorageImpl& storage, std::string_view op);
  /// The program is about to read the file itself. One that has changed ends the job. Any thread.
  void check_record_at(const void* address);

 private:
  const void* bytes_of_device(pipeline::StorageOrdinal ordinal, const c10::Storage& storage);

  transport::Transport& transport_;
  runtime::Runtime& runtime_;
  pipeline::Job& job_;
  StorageTable& storages_;
  const pipeline::Directory& directory_;
  ProgramMemory& memory_;
  const DeviceBytes& devices_;
  ArchiveExchange exchange_;
  AbsentBytes absent_;
  StagedBytes staged_;                   ///< Of the latest storage that was elsewhere.
  at::Tensor tensor_;                    ///< The latest.
  std::atomic<bool> has_absent_{false};  ///< Has written such bytes.
};

}  // namespace spillway::split
