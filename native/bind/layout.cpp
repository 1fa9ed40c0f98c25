#include "bind/layout.hpp"

#include "bind/numbers.hpp"

namespace nb = nanobind;

namespace moonpool {

void bind_layout(nb::module_& module) {
  nb::class_<Layout>(module, "Layout", nb::is_final())
      .def(nb::new_([](nb::object base, nb::object stride, nb::object piece_bytes, std::uint64_t block_count) {
             return Layout(Numbers(base, "base").copy(), Numbers(stride, "stride").copy(),
                           Numbers(piece_bytes, "piece_bytes").copy(), block_count);
           }),
           nb::arg("base"), nb::arg("stride"), nb::arg("piece_bytes"), nb::arg("block_count"))
      .def_prop_ro("block_bytes", &Layout::block_bytes)
      .def_prop_ro("piece_count", &Layout::piece_count)
      .def_prop_ro("block_count", &Layout::block_count);
}

}  // namespace moonpool
