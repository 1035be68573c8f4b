/* The C ABI of weight uploads: files of a checkpoint into the memory of a device. */
#pragma once

#include "abi/vcc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Do the `count` copies at `copies` (64 bytes each: weights_pieces.h) into `region_bytes` bytes of
   device memory at `base`. `paths` are `files` paths, each ended by a zero byte; `least` has the
   bytes that each must have, 8 bytes each. `threads` readers at most; each has two pinned slots of
   `slot_bytes` and a stream of its own. Returns when everything has arrived.
   `bytes` reached the device in `seconds`, of which `first` passed before the first copy was sent;
   `ring` bytes of host memory were pinned meanwhile. */
VCC_API int32_t vcc_weights_load(uint64_t device, uint64_t base, uint64_t region_bytes,
                                 const char* paths, uint64_t path_bytes, const void* least,
                                 uint32_t files, const void* copies, uint64_t count,
                                 const char* constants, uint64_t constant_bytes, uint32_t threads,
                                 uint64_t slot_bytes, uint64_t* bytes, double* seconds,
                                 double* first, uint64_t* ring);

#ifdef __cplusplus
}
#endif
