#include "bind/numbers.hpp"

#include "io/memory.hpp"

namespace nb = nanobind;

namespace moonpool {
namespace {

bool is_signed_format(const char* format) {
  const std::string_view text = format == nullptr ? "B" : format;
  return !text.empty() && (text.back() == 'q' || text.back() == 'l' || text.back() == 'n');
}

bool is_integer_format(const char* format) {
  const std::string_view text = format == nullptr ? "B" : format;
  if (text.empty() || text.size() > 2 ||
      (text.size() == 2 && std::string_view("@=<").find(text[0]) == std::string_view::npos)) {
    return false;
  }
  return std::string_view("QqLlNn").find(text.back()) != std::string_view::npos;
}

std::uint64_t number_of(nb::handle item, const char* argument) {
  nb::object index = nb::steal(PyNumber_Index(item.ptr()));
  if (!index.is_valid()) { nb::raise_python_error(); }
  const std::uint64_t value = PyLong_AsUnsignedLongLong(index.ptr());
  if (value == std::numeric_limits<std::uint64_t>::max() && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw nb::value_error((std::string(argument) + ": a number does not fit 64 unsigned bits").c_str());
  }
  return value;
}

std::vector<std::uint64_t> numbers_of(nb::handle sequence, const char* argument) {
  nb::object fast =
      nb::steal(PySequence_Fast(sequence.ptr(), "expected a buffer of 8-byte integers or a sequence of int"));
  if (!fast.is_valid()) { nb::raise_python_error(); }
  const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(fast.ptr()));
  std::vector<std::uint64_t> values;
  values.reserve(count);
  for (std::size_t index = 0; index < count; ++index) {
    values.push_back(number_of(PySequence_Fast_GET_ITEM(fast.ptr(), static_cast<Py_ssize_t>(index)), argument));
  }
  return values;
}

}  // namespace

BufferGuard::BufferGuard(nb::handle object, int flags) {
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) { nb::raise_python_error(); }
}

BufferGuard::~BufferGuard() { PyBuffer_Release(&view_); }

ConstBytes BufferGuard::bytes() const {
  return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
}

MutableBytes BufferGuard::mutable_bytes() const {
  return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
}

Numbers::Numbers(nb::handle object, const char* argument) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) {
    list_ = numbers_of(object, argument);
    values_ = list_;
    return;
  }
  buffer_.emplace(object, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT);
  const Py_buffer& view = buffer_->view();
  if (view.itemsize != 8 || !is_integer_format(view.format)) {
    throw nb::value_error((std::string(argument) + ": expected 8-byte integers").c_str());
  }
  values_ = {static_cast<const std::uint64_t*>(view.buf), static_cast<std::size_t>(view.len) / 8};
  if (is_signed_format(view.format)) {
    for (const std::uint64_t value : values_) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        throw nb::value_error((std::string(argument) + ": a number is negative").c_str());
      }
    }
  }
}

std::vector<std::string_view> key_views(nb::handle object) {
  if (PyList_Check(object.ptr()) == 0 && PyTuple_Check(object.ptr()) == 0) {
    throw nb::type_error("keys: expected a list or tuple of bytes");
  }
  const auto count = static_cast<std::size_t>(PySequence_Fast_GET_SIZE(object.ptr()));
  std::vector<std::string_view> keys;
  keys.reserve(count);
  for (std::size_t index = 0; index < count; ++index) {
    PyObject* item = PySequence_Fast_GET_ITEM(object.ptr(), static_cast<Py_ssize_t>(index));
    if (PyBytes_Check(item) == 0) { throw nb::type_error("keys: expected a list or tuple of bytes"); }
    keys.emplace_back(PyBytes_AS_STRING(item), static_cast<std::size_t>(PyBytes_GET_SIZE(item)));
  }
  return keys;
}

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

namespace {

// Whether every key of a list is bytes of 1 to byte_count_max: engines' batches, checked at once.
bool are_plain_keys(nb::list keys, std::size_t byte_count_max) {
  const auto count = static_cast<std::size_t>(PyList_GET_SIZE(keys.ptr()));
  for (std::size_t index = 0; index < count; ++index) {
    PyObject* const item = PyList_GET_ITEM(keys.ptr(), static_cast<Py_ssize_t>(index));
    if (PyBytes_CheckExact(item) == 0) { return false; }
    const auto byte_count = static_cast<std::size_t>(PyBytes_GET_SIZE(item));
    if (byte_count == 0 || byte_count > byte_count_max) { return false; }
  }
  return true;
}

// Whether every [address, address + length) has bytes and lies inside the range
// from start to its last byte.
bool lie_within(nb::object addresses, nb::object lengths, std::uint64_t start, std::uint64_t last) {
  const Numbers starts(addresses, "addresses");
  const Numbers sizes(lengths, "lengths");
  if (starts.values().size() != sizes.values().size()) { return false; }
  for (std::size_t index = 0; index < starts.values().size(); ++index) {
    const std::uint64_t address = starts.values()[index];
    const std::uint64_t length = sizes.values()[index];
    if (length == 0 || address < start || address > last || length - 1 > last - address) { return false; }
  }
  return true;
}

// Whether the ranges come in ascending order and share no byte, as engines pass them.
bool ascend_apart(nb::object addresses, nb::object lengths) {
  const Numbers starts(addresses, "addresses");
  const Numbers sizes(lengths, "lengths");
  if (starts.values().size() != sizes.values().size()) { return false; }
  for (std::size_t index = 1; index < starts.values().size(); ++index) {
    const std::uint64_t before = starts.values()[index - 1];
    const std::uint64_t address = starts.values()[index];
    if (address < before || address - before < sizes.values()[index - 1]) { return false; }
  }
  return true;
}

}  // namespace

void bind_numbers(nb::module_& module) {
  module.def("are_plain_keys", &are_plain_keys, nb::arg("keys"), nb::arg("byte_count_max"));
  module.def("ascend_apart", &ascend_apart, nb::arg("addresses"), nb::arg("lengths"));
  module.def("lie_within", &lie_within, nb::arg("addresses"), nb::arg("lengths"), nb::arg("start"), nb::arg("last"));
  module.def(
      "address_of",
      [](nb::object data, bool writable) {
        const BufferGuard guard(data, writable ? PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS : PyBUF_C_CONTIGUOUS);
        return nb::make_tuple(address_of(guard.bytes()), guard.view().len);
      },
      nb::arg("data"), nb::arg("writable") = false);
}

}  // namespace moonpool
