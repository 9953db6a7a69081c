#include "program_archives.h"

#include <c10/core/CPUAllocator.h>
#include <xxhash.h>

#include <exception>
#include <string>
#include <utility>

#include "call_arguments.h"
#include "first_rank.h"
#include "record_memory.h"
#include "spillway/phantoms/plain_tensor.h"

namespace spillway::split {

using pipeline::StorageOrdinal;

const void* ProgramArchives::bytes_of(StorageOrdinal ordinal, const void* memory,
                                      std::size_t size) {
  const pipeline::RankSet& holders = directory_.at(ordinal).holders;
  const Rank here = transport_.rank();
  if (!holders.is_all()) has_absent_ = true;
  const bool is_here = holders.contains(here);
  if (is_here)
    if (const void* const held = memory_.bytes_of(ordinal, "an archive")) memory = held;
  if (is_here && holders.contains(kFirst)) return memory;
  if (here != kFirst) {
    if (is_here && holders.first() == here)
      exchange_.owe(ordinal, device::host_span(static_cast<std::byte*>(const_cast<void*>(memory)),
                                               Bytes(size)));
    return absent_.of(size);
  }
  staged_ = StagedBytes(Bytes(size));
  exchange_.fetch(holders.first(), ordinal, staged_.span());
  return staged_.span().data;
}

const void* ProgramArchives::bytes_of_device(StorageOrdinal ordinal, const c10::Storage& storage) {
  const pipeline::RankSet& holders = directory_.at(ordinal).holders;
  const Rank here = transport_.rank();
  if (!holders.is_all()) has_absent_ = true;
  const bool is_here = holders.contains(here);
  const c10::Storage held = is_here ? memory_.held_of(ordinal, "an archive") : c10::Storage();
  const c10::Storage& bytes = held ? held : storage;
  if (here != kFirst && !(is_here && holders.contains(kFirst))) {
    if (is_here && holders.first() == here) exchange_.owe(ordinal, bytes);
    return absent_.of(storage.nbytes());
  }
  staged_ = StagedBytes(Bytes(storage.nbytes()));
  if (is_here) {
    devices_.copy_to_host(staged_.span().data, bytes, 0, storage.nbytes());
  } else {
    exchange_.fetch(holders.first(), ordinal, staged_.span());
  }
  return staged_.span().data;
}

const at::Tensor& ProgramArchives::tensor_of(StorageOrdinal ordinal, const at::Tensor& tensor) {
  const c10::StorageImpl& storage = storage_of(tensor);
  const void* const bytes = storage.device().is_cpu()
                                ? bytes_of(ordinal, storage.data(), storage.nbytes())
                                : bytes_of_device(ordinal, tensor.storage());
  if (bytes == storage.data()) return tensor;
  tensor_ = phantoms::PlainTensor::of(*tensor.unsafeGetTensorImpl())
                .over(c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                                   borrowed(bytes, c10::Device(c10::DeviceType::CPU))));
  return tensor_;
}

void ProgramArchives::ended(const void* address, bool is_programs) noexcept {
  if (!exchange_.owes_any()) return;
  const auto ordinal = storages_.at(address);
  if (!ordinal) return;
  if (!is_programs) return exchange_.wait_for(*ordinal);
  try {
    exchange_.wait_for_all();
  } catch (const std::exception& error) {
    job_.abort(error.what());
  }
}

void ProgramArchives::record_read(const c10::DataPtr& memory, std::size_t size, bool is_programs) {
  // Another thread comes by at a moment of its own on each rank, and is not split.
  const bool is_elsewhere = has_absent_ && is_programs;
  if (has_absent_ && !is_elsewhere && AbsentBytes::are_at(memory.get(), size))
    job_.abort(
        "a thread of its own reads an archive of this run, whose bytes are in the file of the "
        "first rank: load it on the program's first thread, or after the run");
  RecordMemory* const record = RecordMemory::of(memory);
  if (record != nullptr && is_elsewhere) record->is_elsewhere = transport_.rank() != kFirst;
  std::uint64_t number = 0;
  if (!is_elsewhere)
    number = record != nullptr ? record->range().file->checksum_of(record->range().from)
                               : XXH3_64bits(memory.get(), size);
  storages_.note_loaded(memory, is_elsewhere, number);
}

void ProgramArchives::fill_for_other_thread(c10::StorageImpl& storage) {
  const RecordMemory* const record = RecordMemory::of(storage);
  if (record == nullptr || record->is_numbered || record->is_elsewhere) return;
  try {
    c10::DataPtr filled = c10::GetCPUAllocator()->allocate(storage.nbytes());
    record->range().read_to(runtime_, filled.get());
    storage.set_data_ptr_noswap(std::move(filled));
  } catch (const IoError& error) {
    job_.abort(error.what());
  }
}

void ProgramArchives::check_mapped(const c10::StorageImpl& storage, std::string_view op) {
  if (has_absent_ && AbsentBytes::are_at(storage.data(), storage.nbytes()))
    job_.abort(message("{} reads an archive of this run, whose bytes are in the file of the "
                       "first rank: load it without mmap",
                       op));
}

void ProgramArchives::check_record_at(const void* address) {
  const RecordMemory* const record = RecordMemory::around(address);
  const std::string changed = record == nullptr ? "" : record->range().file->change();
  if (!changed.empty()) job_.abort(changed);
}

}  // namespace spillway::split
