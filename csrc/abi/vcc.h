/* The plain C ABI of vcc: no Python, no torch, no C++ types. Loaded by engine/native.py. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VCC_API __attribute__((visibility("default")))

/* The number that changes whenever a signature below changes. */
VCC_API uint32_t vcc_abi_version(void);

/* The x86-64 micro-architecture level of this CPU: 2, 3 or 4; 0 on other architectures. */
VCC_API int vcc_cpu_level(void);

/* End this process when the thread that started it ends, and with it the other processes of the
   group that it leads. Takes SIGUSR2 for that. 0, or -1 with errno set. A parent that ended before
   the call is not noticed: compare getppid() with the id it gave. */
VCC_API int vcc_die_with_parent(void);

#ifdef __cplusplus
}
#endif
