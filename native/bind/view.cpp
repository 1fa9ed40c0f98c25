#include "bind/view.hpp"

#include <stdexcept>

namespace nb = nanobind;

namespace moonpool {
namespace {

int get_buffer(PyObject* self, Py_buffer* buffer, int flags) noexcept {
  auto* view = nb::inst_ptr<View>(nb::handle(self));
  try {
    const ConstBytes bytes = view->held().bytes();
    // The signature of the buffer protocol is not const; read-only is said in the flags and checked.
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
    if (PyBuffer_FillInfo(buffer, self, const_cast<std::byte*>(bytes.data()), static_cast<Py_ssize_t>(bytes.size()), 1,
                          flags) != 0) {
      return -1;
    }
  } catch (const std::exception& error) {
    buffer->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, error.what());
    return -1;
  }
  view->exported();
  return 0;
}

void release_buffer(PyObject* self, Py_buffer*) noexcept { nb::inst_ptr<View>(nb::handle(self))->unexported(); }

// The type's constructor takes them as a mutable pointer.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
PyType_Slot view_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
    {0, nullptr},
};

}  // namespace

void View::release() {
  released_ = true;
  if (export_count_ == 0) { held_.reset(); }
}

void View::unexported() {
  --export_count_;
  if (released_ && export_count_ == 0) { held_.reset(); }
}

const HeldBytes& View::held() const {
  if (released_ || !held_) { throw std::logic_error("the view was released"); }
  if (!held_->of_this_process()) { throw std::logic_error("the view belongs to the parent of this process"); }
  return *held_;
}

void bind_view(nb::module_& module) {
  nb::class_<View>(module, "View", nb::is_final(), nb::type_slots(view_slots))
      .def("verify",
           [](View& self) {
             const HeldBytes& held = self.held();
             self.exported();  // released in the meantime by another thread: the bytes stay
             bool fits = false;
             {
               const nb::gil_scoped_release unlocked;
               fits = held.verify();
             }
             self.unexported();
             return fits;
           })
      .def("release", &View::release)
      .def_prop_ro("length", [](const View& self) { return self.held().bytes().size(); })
      .def_prop_ro("checksum", [](const View& self) { return self.held().checksum(); })
      .def_prop_ro("generation", [](const View& self) { return self.held().generation(); })
      .def("__len__", [](const View& self) { return self.held().bytes().size(); });
}

}  // namespace moonpool
