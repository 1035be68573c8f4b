/* The C ABI of devices. */
#pragma once

#include "abi/vcc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Load the driver library `path` and retain the primary context of device `ordinal`. */
VCC_API int32_t vcc_device_open(const char* path, int32_t ordinal, uint64_t* device);

/* Release it. Arenas and players of the device keep it until they are closed. */
VCC_API int32_t vcc_device_close(uint64_t device);

/* What the device is, as JSON; the text is valid until the next text of this thread. */
VCC_API int32_t vcc_device_info(uint64_t device, const char** json);

/* Wait for everything on the device. */
VCC_API int32_t vcc_device_synchronize(uint64_t device);

/* Copies and a fill that are done when they return: for tests, checks and small transfers. */
VCC_API int32_t vcc_device_write(uint64_t device, uint64_t address, const void* data,
                                 uint64_t size);
VCC_API int32_t vcc_device_read(uint64_t device, uint64_t address, void* data, uint64_t size);
VCC_API int32_t vcc_device_fill(uint64_t device, uint64_t address, uint32_t byte, uint64_t size);

#ifdef __cplusplus
}
#endif
