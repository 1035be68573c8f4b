/* Device memory at addresses that the caller chooses, for recording: one pool a region, each a part
   of a reservation that fills from its start and gives nothing back (torch's own allocator reuses
   what it has). The same allocations in the same order lie at the same offsets in every process. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/vcc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reserve `bytes` of addresses at `wanted`, or anywhere for 0; gives where the driver has them.
   They are given back at once when that is not where they were wanted. */
VCC_API int32_t vcc_pool_reserve(uint64_t wanted, uint64_t bytes, uint64_t* got);

/* Make `bytes` from `base` on, in a reservation, pool `index` (0 to 3). No two pools have addresses
   in one page of 2 MiB; `base` may lie anywhere in its first. */
VCC_API int32_t vcc_pool_open(uint32_t index, int32_t ordinal, uint64_t base, uint64_t bytes);

/* Bytes handed out so far; all of them have memory. */
VCC_API int32_t vcc_pool_used(uint32_t index, uint64_t* bytes);

/* Take `bytes` from a pool, for callers without torch. */
VCC_API int32_t vcc_pool_take(uint32_t index, uint64_t bytes, uint64_t* address);

/* torch's pluggable allocator: one function a pool; null when the pool is full. */
VCC_API void* vcc_pool_malloc_0(ssize_t bytes, int device, void* stream);
VCC_API void* vcc_pool_malloc_1(ssize_t bytes, int device, void* stream);
VCC_API void* vcc_pool_malloc_2(ssize_t bytes, int device, void* stream);
VCC_API void* vcc_pool_malloc_3(ssize_t bytes, int device, void* stream);
VCC_API void vcc_pool_free(void* address, ssize_t bytes, int device, void* stream);

#ifdef __cplusplus
}
#endif
