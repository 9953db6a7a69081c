#include "spillway/split/split_program.h"

#include <torch/csrc/autograd/function.h>

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "absent_reads.h"
#include "archive_file.h"
#include "call_arguments.h"
#include "held_signals.h"
#include "python_frames.h"
#include "rank_figures.h"
#include "record_memory.h"
#include "spillway/base/log.h"
#include "spillway/phantoms/phantom_memory.h"
#include "spillway/recompute/operator_rules.h"
#include "split_program_impl.h"

namespace spillway::split {

using pipeline::StorageOrdinal;

// What the program does past the operators of its thread.

void SplitProgram::Impl::refuse(const std::string& reason) {
  const std::string frames = python_frames();
  if (!frames.empty() && log_enabled(LogLevel::kError))
    log_line(LogLevel::kInfo, message("Python is at {}", frames));
  job_.abort(reason);
}

void SplitProgram::Impl::check_other_thread(const c10::OperatorHandle& op,
                                            c10::ArrayRef<c10::IValue> arguments) {
  const auto& accesses = recompute::rules_of(op).uses;
  for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t position) {
    archives_.fill_for_other_thread(storage_of(tensor));
    if (is_phantom(storage_of(tensor)))
      refuse(message("{} runs on a thread of its own, with a tensor of the part of the program "
                     "that is split: train on the program's first thread, or without --split",
                     kept_name_of(op)));
    if (accesses[position] == recompute::ArgumentUse::kRead) return;
    const auto ordinal = storages_.at(storage_of(tensor).data());
    if (ordinal && executor_.has(*ordinal) && !memory_.is_kept(*ordinal))
      refuse(message("{} runs on a thread of its own and writes a tensor, {} {}, that operators of "
                     "the program's first thread may not have read yet: let that thread make a "
                     "tensor of its own (clone()), or train without --split",
                     kept_name_of(op), tensor.scalar_type(), tensor.sizes()));
  });
}

void SplitProgram::Impl::before_pointer(const at::TensorBase& tensor, bool writes, bool keeps) {
  if (!tensor.unsafeGetTensorImpl()->has_storage()) return;
  c10::StorageImpl& storage = storage_of(tensor);
  if (storage.data() == nullptr) return;
  if (!is_on_this_thread()) archives_.fill_for_other_thread(storage);
  if (!may_ask()) return;
  const auto ordinal = memory_.number_of(storage);
  if (!ordinal) return;
  if (!keeps && storage.device().is_cuda()) {
    read_next_ = ordinal;  // The host has no use for its bytes.
    return;
  }
  if (means_) average(means_->read_at(*ordinal));
  const auto mark = call_mark();
  show(storage, {*ordinal, writes, tensor.requires_grad(), Bytes(storage.nbytes())});
  if (keeps) keep_everywhere(*ordinal);
}

bool SplitProgram::Impl::numbers_apart() const {
  if (!takes_threads_place_ || !is_on_this_thread()) return false;
  const auto node = torch::autograd::get_current_node();
  return node != nullptr && !node->device().is_cpu();
}

const void* SplitProgram::Impl::archived_bytes(const void* memory, std::size_t size) {
  const auto ordinal = may_ask() ? storages_.at(memory) : std::nullopt;
  if (!ordinal) {
    archives_.check_record_at(memory);
    return memory;
  }
  if (means_) average(means_->read_at(*ordinal));
  return archives_.bytes_of(*ordinal, memory, size);
}

const at::Tensor& SplitProgram::Impl::archived_tensor(const at::Tensor& tensor) {
  if (!may_ask() || !tensor.unsafeGetTensorImpl()->has_storage()) return tensor;
  const c10::StorageImpl& storage = storage_of(tensor);
  const auto ordinal = storages_.at(storage.data());
  if (!ordinal) {
    archives_.check_record_at(storage.data());
    return tensor;
  }
  if (means_) average(means_->read_at(*ordinal));
  return archives_.tensor_of(*ordinal, tensor);
}

void SplitProgram::Impl::before_flag() {
  if (!may_ask()) return;
  job_.control().begin_call("a flag of LibTorch");
  job_.control().end_call();
  executor_.wait_until_left(0);
}

void SplitProgram::Impl::read_past_operators(const void* address) {
  archives_.check_record_at(address);
  const auto ordinal = storages_.around(address);
  std::string where;
  if (ordinal && is_on_this_thread()) {
    const pipeline::RankSet& holders = ownership_.directory().at(*ordinal).holders;
    where = message(", storage {} of rank {},", ordinal->value(), holders.first().value());
  }
  const auto latest = job_.control().latest(1);
  refuse(message("after {} the program reads or writes a tensor{} by a pointer that nobody has "
                 "told of: {}",
                 latest.empty() ? "its start" : latest.back().name, where, kReadByOperators));
}

/// The child has copies of what this process has, and asks nobody: what the program has drawn or
/// filled, as rows of data that processes of a data loader read, has to be there.
void SplitProgram::Impl::before_fork() noexcept {
  if (!may_ask()) return;
  try {
    deferred_.for_each_but_parameters([&](StorageOrdinal ordinal, c10::StorageImpl& storage) {
      if (RecordMemory::of(storage) != nullptr) return;  // The file is there for the child, too.
      if (!ownership_.directory().at(ordinal).holders.is_all()) return;
      memory_.show(storage, ordinal, false, "a new process");
    });
  } catch (const std::exception& error) {
    job_.abort(error.what());
  }
}

void SplitProgram::Impl::begin_micro_batch() {
  if (!may_ask()) return;
  job_.control().begin_call("spillway::micro_batch()");
  job_.control().end_call();
  // Backward of the first waits for forward of the last, in the order of the program.
  lists_.give_up("the program marks its micro-batches itself");
  executor_.lift_window();
  if (steps_.is_between()) steps_.begin(uses_gpu_);
  ownership_.begin_micro_batch();
  lead_.look_at_micro_batch();
}

void SplitProgram::Impl::program_ends() noexcept {
  if (!is_on_this_thread() || is_in_call_) return;
  try {
    drain();
    if (!uses_gpu_) return;
    // Later LibTorch's part for it is gone.
    const c10::Device gpu(c10::DeviceType::CUDA, 0);
    DeviceBytes::wait_for(gpu);
    gpu_peak_ = DeviceBytes::peak_of(gpu);
    stop_device_messages();
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
}

void SplitProgram::Impl::drain() {
  if (shards_) shards_->tell_end(steps_.count());
  executor_.wait_until_left(0);
  archives_.wait_for_all();
  if (shards_) shards_->wait_for_ends();
}

std::vector<runtime::RanksReport::Row> SplitProgram::Impl::gather(runtime::RankFigures mine) {
  mine.parameter_bytes = ownership_.most_parameters_of(transport_.rank()).count();
  mine.micro_batches = ownership_.micro_batch_of_run() + 1;
  mine.steps = steps_.count();
  if (mine.gpu_budget_bytes == 0) mine.gpu_peak_bytes = gpu_peak_;  // LibTorch's own memory.
  executor_.write(mine);
  between_devices_.write(mine);
  // A rank whose program has ended alone is found by this.
  job_.control().begin_call(pipeline::ControlHash::kEndOfProgram);
  job_.control().end_call();
  return gather_rows(transport_, job_, shards_.get(), ownership_.placement(), mine);
}

runtime::RanksTrace SplitProgram::Impl::trace(std::vector<runtime::RecordedTrace> mine,
                                              bool joins) {
  return gather_trace(transport_, job_, shards_.get(), log_.get(), std::move(mine), joins);
}

void SplitProgram::Impl::finish() {
  stop_device_messages();
  job_.end();
  if (shards_) shards_->job().end();
  archives_.stop();
  executor_.stop();
}

void SplitProgram::Impl::ended(const void* address) noexcept {
  archives_.ended(address, is_on_this_thread());
  storages_.ended(address);
}

SplitProgram::SplitProgram(SplitOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  running_.store(this);
  watch_absent_reads(&SplitProgram::read_past_operators);
  phantoms::PhantomMemory::observe_ends(&SplitProgram::ended);
  RecordMemory::observe_ends(&SplitProgram::ended);
}

SplitProgram::~SplitProgram() { running_.store(nullptr); }

bool SplitProgram::is_on_this_thread() const noexcept { return impl_->is_on_this_thread(); }

bool SplitProgram::is_in_call() const noexcept { return impl_->is_in_call(); }

bool SplitProgram::is_in_parts(const c10::OperatorHandle& op,
                               c10::ArrayRef<c10::IValue> arguments) {
  return impl_->is_in_parts(op, arguments);
}

void SplitProgram::run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                       torch::jit::Stack& stack, const runtime::OpTraits& traits) {
  impl_->run(op, below, stack, traits);
}

void SplitProgram::check_other_thread(const c10::OperatorHandle& op,
                                      c10::ArrayRef<c10::IValue> arguments) {
  impl_->check_other_thread(op, arguments);
}

int SplitProgram::hold_signal(int signal) noexcept { return HeldSignals::hold(signal) ? 1 : 0; }

void SplitProgram::before_pointer(const void* tensor, int writes) {
  if (SplitProgram* const program = running())
    program->impl_->before_pointer(*static_cast<const at::TensorBase*>(tensor), writes > 0,
                                   writes >= 0);
}

const void* SplitProgram::archived_tensor(const void* tensor) {
  SplitProgram* const program = running();
  if (program == nullptr) return tensor;
  return &program->impl_->archived_tensor(*static_cast<const at::Tensor*>(tensor));
}

const void* SplitProgram::archived_bytes(const void* memory, std::size_t size) {
  SplitProgram* const program = running();
  return program == nullptr ? memory : program->impl_->archived_bytes(memory, size);
}

std::size_t SplitProgram::absent_bytes(const void* memory, std::size_t size) noexcept {
  const SplitProgram* const program = running();
  return program == nullptr ? 0 : program->impl_->absent_bytes(memory, size);
}

void SplitProgram::read_record(void (*function)(), void* result, void* reader, const void* name,
                               const void* allocator) {
  using Allocator = std::optional<c10::Allocator*>;
  const auto read = reinterpret_cast<RecordMemory::Read>(function);
  auto& from = *static_cast<RecordMemory::Reader*>(reader);
  const auto& what = *static_cast<const std::string*>(name);
  const Allocator& into = *static_cast<const Allocator*>(allocator);
  SplitProgram* const program = running();
  RecordMemory::Record record =
      program == nullptr ? read(from, what, into) : RecordMemory::read(read, from, what, into);
  if (program != nullptr) {
    program->impl_->record_read(std::get<0>(record), std::get<1>(record));
  } else if (AbsentBytes::are_at(std::get<0>(record).get(), std::get<1>(record))) {
    constexpr std::string_view kReason =
        "a process that a rank has started reads an archive of this run, whose bytes are in the "
        "file of the first rank: read it where the program trains, or after the run";
    log_error("{}", kReason);
    throw UnsupportedError("{}", kReason);
  }
  new (result) RecordMemory::Record(std::move(record));
}

int SplitProgram::read_part(int file, void* memory, std::size_t size, off_t from) {
  return RecordMemory::read_part(file, memory, size, from) ? 1 : 0;
}

int SplitProgram::keeps_file(dev_t device, ino_t inode) {
  return ArchiveFile::was_loaded(device, inode) ? 1 : 0;
}

void SplitProgram::before_flag() {
  if (SplitProgram* const program = running()) program->impl_->before_flag();
}

int SplitProgram::numbers_apart() {
  SplitProgram* const program = running();
  return program != nullptr && program->impl_->numbers_apart() ? 1 : 0;
}

void SplitProgram::leaf_made(void* tensor) {
  if (SplitProgram* const program = running())
    program->impl_->leaf_made(*static_cast<c10::TensorImpl*>(tensor));
}

void SplitProgram::parameter_registered(const void* parameter) {
  if (SplitProgram* const program = running())
    program->impl_->parameter_registered(*static_cast<const at::Tensor*>(parameter));
}

void SplitProgram::read_past_operators(const void* address) noexcept {
  SplitProgram* const program = running();
  if (program != nullptr) {
    program->impl_->read_past_operators(address);
  } else if (is_left_to_parent_.load()) {
    log_error("a forked child reads a tensor whose bytes are in no memory of its own: {}",
              kReadByOperators);
  }
}

void SplitProgram::refuse_gpu(const std::string& reason) {
  if (SplitProgram* const program = running()) program->impl_->refuse(reason);
}

void SplitProgram::before_fork() noexcept {
  if (SplitProgram* const program = running()) program->impl_->before_fork();
}

void SplitProgram::begin_micro_batch() { impl_->begin_micro_batch(); }

void SplitProgram::program_ends() noexcept {
  if (SplitProgram* const program = running()) program->impl_->program_ends();
}

void SplitProgram::drain() { impl_->drain(); }

std::vector<runtime::RanksReport::Row> SplitProgram::gather(const runtime::RankFigures& mine) {
  return impl_->gather(mine);
}

runtime::RanksTrace SplitProgram::trace(std::vector<runtime::RecordedTrace> mine, bool joins) {
  return impl_->trace(std::move(mine), joins);
}

runtime::LayerMoves SplitProgram::layer_moves() const { return impl_->layer_moves(); }
bool SplitProgram::has_given_up_lists() const { return impl_->has_given_up_lists(); }

void SplitProgram::finish() {
  impl_->finish();
  running_.store(nullptr);
}

void SplitProgram::note_ended(const void* address) noexcept { impl_->ended(address); }

}  // namespace spillway::split
