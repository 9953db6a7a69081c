#pragma once

#include <cstddef>

// What the core of these tests offers the program beside its hooks: memory that may not be touched
// before somebody has announced it, as the storages of a program that is split over ranks.

extern "C" {

/// Addresses for `size` bytes, whose pages cannot be accessed until they are announced. Each float
/// then holds `value`. `name` is what announcements call them; "refused": they throw instead.
void* absent_memory(const char* name, std::size_t size, float value);

/// Makes all absent memory accessible, as if it had been announced, and tells of it no more.
void bring_in_all();

/// What was announced on any thread since the last call, separated by "; ".
const char* announcements();
}

using AbsentMemory = decltype(&absent_memory);
using BringInAll = decltype(&bring_in_all);
using Announcements = decltype(&announcements);
