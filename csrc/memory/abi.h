/* The C ABI of the arena (arena.h says what each function does). Lists of tags are joined by 0x1f;
   an empty text means all tags. */
#pragma once

#include "abi/vcc.h"

#ifdef __cplusplus
extern "C" {
#endif

VCC_API int32_t vcc_arena_open(uint64_t device, uint32_t enabled, uint64_t* arena);
VCC_API int32_t vcc_arena_close(uint64_t arena);
VCC_API int32_t vcc_arena_allocate(uint64_t arena, uint64_t size, const char* tag,
                                   uint64_t* address);
VCC_API int32_t vcc_arena_free(uint64_t arena, uint64_t address);
VCC_API int32_t vcc_arena_reserve_range(uint64_t arena, uint64_t size, uint64_t chunk,
                                        const char* tag, uint64_t* address);
VCC_API int32_t vcc_arena_map_range(uint64_t arena, uint64_t range, uint64_t offset, uint64_t size);
VCC_API int32_t vcc_arena_unmap_range(uint64_t arena, uint64_t range, uint64_t offset,
                                      uint64_t size);
VCC_API int32_t vcc_arena_range(uint64_t arena, uint64_t range, uint64_t* chunk, uint64_t* mapped);
VCC_API int32_t vcc_arena_free_range(uint64_t arena, uint64_t range);
VCC_API int32_t vcc_arena_available(uint64_t arena, uint64_t* bytes);
VCC_API int32_t vcc_arena_sleep(uint64_t arena, int32_t level, const char* tags);
VCC_API int32_t vcc_arena_wake(uint64_t arena, const char* tags);
VCC_API int32_t vcc_arena_discard(uint64_t arena, const char* tags);
VCC_API int32_t vcc_arena_trim(uint64_t arena, uint64_t* bytes);
VCC_API int32_t vcc_arena_version(uint64_t arena, uint64_t* version);
VCC_API int32_t vcc_arena_require(uint64_t arena, const char* tag, uint32_t contents,
                                  const char* task);
VCC_API int32_t vcc_arena_mark_filled(uint64_t arena, const char* tag);
VCC_API int32_t vcc_arena_stats(uint64_t arena, const char** json);
VCC_API int32_t vcc_arena_ring(uint64_t arena, uint32_t threads, uint64_t slot_bytes);
VCC_API int32_t vcc_arena_times(uint64_t arena, const char** json);

/* Let torch allocate from this arena on its device (vcc_torch_malloc); 0 as `bound`: no more. */
VCC_API int32_t vcc_arena_bind_torch(uint64_t arena, uint32_t bound);

/* The tag that this thread's torch allocations get from now on; the one before is returned. */
VCC_API int32_t vcc_arena_thread_tag(const char* tag, const char** before);

/* torch's pluggable allocator: null when there is no memory or no bound arena. `stream` is unused:
   torch frees only what its streams have finished with. */
VCC_API void* vcc_torch_malloc(int64_t size, int device, void* stream);
VCC_API void vcc_torch_free(void* address, int64_t size, int device, void* stream);

#ifdef __cplusplus
}
#endif
