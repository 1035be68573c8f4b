/* Recording CUDA graphs and matrix products: the plain C ABI. Only for processes that build.
   Every function returns 0 or an exit code, see abi/vcc.h. Texts are valid until the next call of
   the thread. Candidates are paths or library names, one a line. */
#pragma once

#include <stdint.h>

#include "abi/vcc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Open the driver library; with ordinal >= 0 also make that device's primary context current. */
VCC_API int32_t vcc_recorder_open(const char* libcuda, int32_t ordinal);

/* Keep every cubin from now on (csrc/recorder/cupti.h); gives the path of the CUPTI taken. */
VCC_API int32_t vcc_recorder_watch(const char* candidates, const char** path);

/* Move what this process allocates from now on by so many bytes (csrc/recorder/spread.h). */
VCC_API int32_t vcc_recorder_spread_heap(uint64_t bytes);
VCC_API int32_t vcc_recorder_spread_mappings(uint64_t bytes);

VCC_API int32_t vcc_recorder_cubin_size(uint64_t index, uint64_t* size);
VCC_API int32_t vcc_recorder_cubin(uint64_t index, void* bytes, uint64_t size);

/* A captured CUgraph as JSON (csrc/recorder/graph.h). */
VCC_API int32_t vcc_recorder_graph(uint64_t graph, const char** json);

/* cuBLASLt: the version and the path that was taken. */
VCC_API int32_t vcc_lt_open(const char* candidates, uint64_t* version, const char** path);
/* A product is seven u32 and its operands seven addresses, in the order of csrc/recorder/lt.h.
   Turns are 0 to 2 (csrc/recorder/stacks.h). */
VCC_API int32_t vcc_lt_workspace(const void* product, uint64_t* bytes);
VCC_API int32_t vcc_lt_record(const void* product, const void* operands, uint32_t turn,
                              const char** json);
VCC_API int32_t vcc_lt_run(const void* product, const void* operands);

/* Device memory of the current context. */
VCC_API int32_t vcc_replay_allocate(uint64_t bytes, uint64_t* address);
VCC_API int32_t vcc_replay_free(uint64_t address);
VCC_API int32_t vcc_replay_fill(uint64_t address, uint32_t byte, uint64_t bytes);
VCC_API int32_t vcc_replay_write(uint64_t address, const void* bytes, uint64_t size);
VCC_API int32_t vcc_replay_read(uint64_t address, void* bytes, uint64_t size);

/* A graph built node by node (csrc/recorder/replay.h). Dimensions are seven u32. */
VCC_API int32_t vcc_replay_function(const void* cubin, const char* name, int32_t max_dynamic,
                                    int32_t carveout, int32_t non_portable, uint64_t* function);
VCC_API int32_t vcc_replay_create(uint64_t* replay);
VCC_API int32_t vcc_replay_kernel(uint64_t replay, uint64_t function, const void* dimensions,
                                  const void* parameters, uint64_t size, const void* attributes,
                                  uint64_t count);
VCC_API int32_t vcc_replay_memset(uint64_t replay, uint64_t target, uint64_t pitch, uint32_t value,
                                  uint32_t element, uint64_t width, uint64_t height);
VCC_API int32_t vcc_replay_memcpy(uint64_t replay, uint64_t target, uint64_t source,
                                  uint64_t bytes);
VCC_API int32_t vcc_replay_empty(uint64_t replay);
/* Edges are five u32 each: from, to, type, from_port, to_port. */
VCC_API int32_t vcc_replay_edges(uint64_t replay, const void* edges, uint64_t count);
VCC_API int32_t vcc_replay_instantiate(uint64_t replay);
VCC_API int32_t vcc_replay_launch(uint64_t replay, uint32_t times, double* microseconds);
VCC_API int32_t vcc_replay_destroy(uint64_t replay);

#ifdef __cplusplus
}
#endif
