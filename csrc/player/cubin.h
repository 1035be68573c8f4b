// What a cubin says about its kernels, read from its ELF sections with every offset checked.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace vcc {

// Bytes of the parameter block of every kernel of a cubin, by function name.
//
// Section `.nv.info.<function>` is a row of entries {u8 form, u8 attribute, u16 value}, of which
// form 4 is followed by `value` bytes; attribute 0x19 holds the size of the block.
//
// Throws Error(kIntegrity) for bytes that are not such a file.
std::map<std::string, uint32_t, std::less<>> cubin_parameters(std::span<const uint8_t> cubin);

}  // namespace vcc
