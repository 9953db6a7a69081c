#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace spillway {

/// A number of bytes. Arithmetic stays in bytes; plain integers convert only explicitly.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::uint64_t count) : count_(count) {}

  constexpr std::uint64_t count() const { return count_; }
  constexpr auto operator<=>(const Bytes&) const = default;

  constexpr Bytes& operator+=(Bytes other) { return count_ += other.count_, *this; }
  constexpr Bytes& operator-=(Bytes other) { return count_ -= other.count_, *this; }

 private:
  std::uint64_t count_ = 0;
};

constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count() + b.count()); }
constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count() - b.count()); }
constexpr Bytes operator*(Bytes a, std::uint64_t n) { return Bytes(a.count() * n); }
constexpr Bytes operator*(std::uint64_t n, Bytes a) { return a * n; }
constexpr std::uint64_t operator/(Bytes a, Bytes b) { return a.count() / b.count(); }
constexpr Bytes operator/(Bytes a, std::uint64_t n) { return Bytes(a.count() / n); }

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return Bytes(n); }
constexpr Bytes operator""_KiB(unsigned long long n) { return Bytes(n << 10); }
constexpr Bytes operator""_MiB(unsigned long long n) { return Bytes(n << 20); }
constexpr Bytes operator""_GiB(unsigned long long n) { return Bytes(n << 30); }
constexpr Bytes operator""_TiB(unsigned long long n) { return Bytes(n << 40); }
}  // namespace literals

/// Writes a size for people, three significant digits: "3.91 GiB", "512 MiB", "17 B".
std::string to_string(Bytes size);

/// Reads a size with a unit: "512MiB", "4 GiB", "1.5GB" (decimal units are powers of 1000).
/// Throws ConfigError for a missing or unknown unit, a negative number, or an overflow; the
/// message repeats the text and gives an example of a valid one.
Bytes parse_bytes(std::string_view text);

std::ostream& operator<<(std::ostream& out, Bytes size);

}  // namespace spillway
