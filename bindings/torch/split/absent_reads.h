#pragma once

#include <string_view>

namespace spillway::split {

/// What a program does instead, as the end of a sentence.
inline constexpr std::string_view kReadByOperators =
    "read it by item(), tolist(), numpy() or a pointer with a type (data_ptr<float>()), which "
    "LibTorch tells of; save it by torch.save or, with safetensors, which reads by addresses, as "
    "numpy() arrays (safetensors.numpy); or train without --split";

/// From now on `tell` is called where the program touches an address without memory, on the thread
/// that does, in a handler of SIGSEGV. If it returns, the signal goes on to whoever had it before,
/// as all others do. Once per process.
void watch_absent_reads(void (*tell)(const void* address) noexcept);

/// Comes before a handler that the program has set since, as faulthandler's, which would see the
/// signal first: it has the signal behind us. On one thread at a time.
void keep_watching_absent_reads();

}  // namespace spillway::split
