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

/* Every function that is declared in another folder's header returns 0 or one of vcc's exit codes
   (2 usage, 3 device, 5 storage, 7 integrity, 8 compile, 9 graph, 70 internal). Then this is what
   happened in the calling thread: "what\x1fwhy\x1fhint\x1fkind" in UTF-8, valid until the next
   error. The kind tells errors of one code apart: "shortage" is one of device memory; most have
   none. */
VCC_API const char* vcc_error_text(void);

#ifdef __cplusplus
}
#endif
