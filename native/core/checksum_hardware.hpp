// CRC32C by the processor's own instruction, where there is one. state is the inverted CRC.
#pragma once

#include "core/types.hpp"

namespace moonpool::crc {

// Asked of the processor at run time; the other two may only be called where it says true.
[[nodiscard]] bool hardware_available();
[[nodiscard]] std::uint32_t update_hardware(std::uint32_t state, ConstBytes bytes);
[[nodiscard]] std::uint32_t update_copy_hardware(std::uint32_t state, MutableBytes target, ConstBytes source);

}  // namespace moonpool::crc
