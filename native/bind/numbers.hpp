// Arguments of the Python face: arrays of unsigned 64-bit numbers, buffers, sequences of keys.
#pragma once

#include <nanobind/nanobind.h>

#include "core/types.hpp"

namespace moonpool {

// A buffer object's memory, given back when this goes. Needs the GIL to make and to drop.
class BufferGuard {
 public:
  // Throws nanobind::python_error (BufferError, TypeError) when the object offers no such buffer.
  BufferGuard(nanobind::handle object, int flags);
  ~BufferGuard();
  BufferGuard(const BufferGuard&) = delete;
  BufferGuard& operator=(const BufferGuard&) = delete;
  BufferGuard(BufferGuard&&) = delete;
  BufferGuard& operator=(BufferGuard&&) = delete;
  [[nodiscard]] const Py_buffer& view() const { return view_; }
  [[nodiscard]] ConstBytes bytes() const;
  [[nodiscard]] MutableBytes mutable_bytes() const;

 private:
  Py_buffer view_{};
};

// "Numbers" of _native.pyi: a buffer of 8-byte integers (no copy) or any sequence of int.
class Numbers {
 public:
  // Throws ValueError or TypeError naming the argument: wrong item size, negative number, not a number.
  Numbers(nanobind::handle object, const char* argument);
  [[nodiscard]] std::span<const std::uint64_t> values() const { return values_; }
  [[nodiscard]] std::vector<std::uint64_t> copy() const { return {values_.begin(), values_.end()}; }

 private:
  std::optional<BufferGuard> buffer_;
  std::vector<std::uint64_t> list_;
  std::span<const std::uint64_t> values_;
};

// Keys as views into the bytes objects of `object`, which must outlive the result.
[[nodiscard]] std::vector<std::string_view> key_views(nanobind::handle object);
[[nodiscard]] nanobind::bytes to_bytes(std::string_view text);

void bind_numbers(nanobind::module_& module);

}  // namespace moonpool
