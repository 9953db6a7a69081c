#include <array>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "spillway/base/clock.h"
#include "spillway/base/error.h"
#include "spillway/device/cpu.h"
#include "spillway/memory/kernel_refusal.h"
#include "spillway/swap/spill_store_factory.h"
#include "store/directory_facts.h"
#include "store/extent_file.h"
#include "store/io_uring/factory.h"
#include "store/mapped_memory.h"
#include "store/notifier.h"
#include "store/posix/factory.h"
#include "store/ram/factory.h"
#include "store/retrying/factory.h"
#include "store/striped/factory.h"
#include "store/tiered/factory.h"
#include "store/verifying/factory.h"

namespace spillway::swap {
namespace {

constexpr std::size_t kDeepestQueue = 1024;

constexpr std::array<Named<StoreKind>, 4> kKinds{{{"auto", StoreKind::kAuto},
                                                  {"io_uring", StoreKind::kIoUring},
                                                  {"posix", StoreKind::kPosix},
                                                  {"ram", StoreKind::kRam}}};

/// What one call of make_spill_store gathers on its way.
struct Opening {
  explicit Opening(const SpillStoreOptions& asked) : options(asked) {}

  const SpillStoreOptions& options;
  StoreKind kind = options.kind;
  std::shared_ptr<Notifier> notifier = std::make_shared<Notifier>();
  std::shared_ptr<OwnDescriptors> descriptors;  // null in RAM
  std::vector<std::unique_ptr<SpillStore>> children;
  std::vector<std::unique_ptr<LentFile>> lent;  // To the device.
  std::vector<std::string> why_not_lent;
  std::vector<std::string> warnings;
  std::string description;
  std::map<std::uint64_t, std::string> path_by_device;
};

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all.append(all.empty() ? "" : "; ").append(text);
  return all;
}

bool is_behind_device(const SpillStoreOptions& options) {
  return options.device != nullptr && !options.device->id().is_host();
}

void check(const SpillStoreOptions& options) {
  if (options.queue_depth < 1 || options.queue_depth > kDeepestQueue)
    throw ConfigError("a queue of {} transfers is not possible: give from 1 to {}",
                      options.queue_depth, kDeepestQueue);
  const bool is_ram = options.kind == StoreKind::kRam;
  if (is_ram && options.ram_capacity < options.extent_size)
    throw ConfigError("a store in RAM needs a capacity of at least {}: {}", options.extent_size,
                      options.ram_capacity);
  if (is_ram && !options.directories.empty())
    throw ConfigError("a store in RAM uses no directory: {}", options.directories.front().path);
  if (is_behind_device(options) && options.host_tier < 2 * options.extent_size)
    throw ConfigError("{} of host memory are too little for what leaves {}: {} are the least",
                      options.host_tier, options.device->id(), 2 * options.extent_size);
  if (is_ram && options.host_tier > Bytes() && !is_behind_device(options))
    throw ConfigError("a store in RAM needs no {} of host memory before it", options.host_tier);
  if (options.host_tier > Bytes() && options.host_tier < options.extent_size)
    throw ConfigError("{} of host memory hold no page of {}", options.host_tier,
                      options.extent_size);
  if (!is_ram && options.directories.empty())
    throw ConfigError("no directory to spill to (name one on a local disk)");
}

/// Files that the device cannot use itself go through host memory, as without it.
void lend_to_device(Opening& opening, const ExtentFile& file) {
  const SpillStoreOptions& options = opening.options;
  if (options.direct == device::DirectFiles::kOff || !is_behind_device(options)) return;
  device::DirectFileIo* const io = device::direct_file_io(*options.device);
  const auto refuse = [&](const std::string& reason) {
    opening.why_not_lent.push_back(message("{}: {}", file.path(), reason));
  };
  if (io == nullptr) return refuse(message("{} cannot", options.device->id()));
  if (options.verify) return refuse("checksums (--verify) are taken in host memory");
  if (!file.is_direct()) return refuse(file.why_buffered());
  try {
    opening.lent.push_back(
        std::make_unique<LentFile>(*opening.descriptors, file.fd(), *io, options.direct));
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

StoreKind resolve_kind(StoreKind asked, std::vector<std::string>& warnings) {
  if (asked == StoreKind::kPosix) return asked;
  const std::string reason = why_no_io_uring();
  if (reason.empty()) return StoreKind::kIoUring;
  if (asked == StoreKind::kIoUring) throw UnsupportedError(reason);
  warnings.push_back(message("threads with pread and pwrite are used: {}", reason));
  return StoreKind::kPosix;
}

// All else that a place can be bad for is judged by whoever chose it (README.md, "Failures").
void warn_about_shared_disk(Opening& opening, const std::string& path, std::uint64_t device) {
  const auto [other, is_new] = opening.path_by_device.emplace(device, path);
  if (!is_new)
    opening.warnings.push_back(message("{} and {} are on one file system: no faster than one of "
                                       "them",
                                       other->second, path));
}

void warn_about_file(Opening& opening, const ExtentFile& file) {
  if (!file.is_direct())
    opening.warnings.push_back(
        message("transfers go through the page cache, which costs memory and time: {}",
                file.why_buffered()));
  if (!file.reserves_space())
    opening.warnings.push_back(
        message("{} cannot reserve space in advance, so space is taken by writing, and a full disk "
                "will show as a failed write: {}",
                file.path(), file.why_unreserved()));
}

void open_directory(Opening& opening, const SpillDirectory& directory) {
  const DirectoryFacts facts = inspect_directory(directory.path);
  if (!facts.trouble.empty()) {
    opening.warnings.push_back(facts.trouble);
    return;
  }
  static const SteadyClock clock;
  try {
    auto file = std::make_unique<ExtentFile>(directory, opening.descriptors, 1_GiB,
                                             opening.options.extent_size);
    warn_about_shared_disk(opening, directory.path, facts.device);
    warn_about_file(opening, *file);
    opening.description += message("{}{}, {} I/O, {} ({})", opening.description.empty() ? "" : "; ",
                                   name_of(opening.kind), file->is_direct() ? "direct" : "buffered",
                                   directory.path, facts.file_system);
    const ExtentFile& in_store = *file;
    const std::size_t depth = opening.options.queue_depth;
    auto store = opening.kind == StoreKind::kIoUring
                     ? make_io_uring_store(std::move(file), depth, opening.notifier)
                     : make_posix_store(std::move(file), depth, opening.notifier);
    if (opening.options.verify) store = make_verifying_store(std::move(store), directory.path);
    opening.children.push_back(make_retrying_store(std::move(store), opening.notifier, clock));
    lend_to_device(opening, in_store);
  } catch (const IoError& refused) {
    opening.warnings.emplace_back(refused.what());
  }
}

void open_ram(Opening& opening) {
  const Bytes capacity = opening.options.ram_capacity;
  auto store = make_ram_store(capacity, opening.options.queue_depth, opening.notifier,
                              opening.options.extent_size);
  if (opening.options.verify) store = make_verifying_store(std::move(store), "RAM");
  opening.children.push_back(std::move(store));
  opening.description = message("RAM, {}", capacity);
}

std::shared_ptr<std::byte> map_memory(Bytes size, bool is_for_children) {
  auto mapped = std::make_shared<MappedMemory>(size.count());
  if (!is_for_children) mapped->hide_from_children();
  std::byte* const begin = mapped->begin();
  return {std::move(mapped), begin};
}

/// Null: all goes through host memory.
std::unique_ptr<DirectTransfers> start_direct_transfers(Opening& opening) {
  if (opening.lent.empty()) return nullptr;
  try {
    return std::make_unique<DirectTransfers>(opening.options.device->id(), std::move(opening.lent),
                                             opening.options.queue_depth, opening.notifier);
  } catch (const IoError& error) {
    if (opening.options.direct == device::DirectFiles::kOn) throw;
    opening.why_not_lent.emplace_back(error.what());
    return nullptr;
  }
}

/// Nothing reaches the memory of the CPU past its cores: only for other devices slabs are pinned.
/// Forked children read the slabs of the CPU, and cannot use other devices.
void put_host_memory_before(OpenedSpillStore& opened, Opening& opening) {
  const std::uint64_t pages = opening.options.host_tier / opening.options.extent_size;
  if (pages >= ExtentId::kNone)
    throw ConfigError("{} of host memory are more than can be managed", opening.options.host_tier);
  using enum device::Pinning;
  const bool pins = is_behind_device(opening.options);
  std::shared_ptr<device::Device> device =
      pins ? opening.options.device : device::make_cpu_device();
  auto slabs = std::make_unique<device::HostSlabs>(
      *device,
      device::HostSlabsOptions{.slab_size = opening.options.extent_size,
                               .slab_count = static_cast<std::uint32_t>(pages),
                               .pinning = pins ? kPinned : kPageable,
                               .memory = [pins](Bytes size) { return map_memory(size, !pins); }});
  if (pins && slabs->pinning() == kPageable)
    opened.warnings.push_back(
        message("{} of host memory for what leaves {} are not pinned, so copies are slower: {}",
                slabs->capacity(), device->id(), slabs->why_pageable()));
  opened.description =
      message("{}host memory, {}, before {}", slabs->pinning() == kPinned ? "pinned " : "",
              slabs->capacity(), opened.description);
  std::unique_ptr<DirectTransfers> direct = start_direct_transfers(opening);
  if (direct != nullptr)
    opened.description +=
        message(opening.why_not_lent.empty() ? ", which {} reads and writes itself"
                                             : ", some of whose files {} reads and writes itself",
                device->id());
  opened.store = make_tiered_store(std::move(device), std::move(slabs), std::move(opened.store),
                                   opening.notifier, opening.options.disks, std::move(direct));
}

}  // namespace

std::span<const Named<StoreKind>> store_kinds() { return kKinds; }

std::string_view name_of(StoreKind kind) { return name_in(kKinds, kind); }

StoreKind store_kind_from(std::string_view name) { return value_named(name, kKinds, "store"); }

OpenedSpillStore make_spill_store(const SpillStoreOptions& options) {
  check(options);
  Opening opening(options);
  if (options.kind == StoreKind::kRam) {
    open_ram(opening);
  } else {
    opening.descriptors = memory::make_own_descriptors();
    if (!opening.descriptors->is_apart())
      opening.warnings.push_back(
          message("a program that closes descriptors which it has not opened will lose its spilled "
                  "tensors, because the kernel gives Spillway no table of its own: {}",
                  opening.descriptors->why_shared()));
    opening.kind = resolve_kind(options.kind, opening.warnings);
    for (const SpillDirectory& directory : options.directories) open_directory(opening, directory);
    if (opening.children.empty())
      throw IoError("no directory to spill to: {}", joined(opening.warnings));
  }
  OpenedSpillStore opened;
  if (options.direct == device::DirectFiles::kOn && is_behind_device(options) &&
      (opening.lent.empty() || !opening.why_not_lent.empty()))
    throw UnsupportedError(
        "{} does not read and write all spill files itself: {}", options.device->id(),
        opening.lent.empty() && opening.why_not_lent.empty() ? "there are none"
                                                             : joined(opening.why_not_lent));
  opened.store = opening.children.size() == 1
                     ? std::move(opening.children.front())
                     : make_striped_store(std::move(opening.children), opening.notifier);
  opened.description = std::move(opening.description);
  opened.warnings = std::move(opening.warnings);
  if (options.host_tier > Bytes()) put_host_memory_before(opened, opening);
  opened.why_not_direct = joined(opening.why_not_lent);
  return opened;
}

}  // namespace spillway::swap
