/* The C ABI of the player: a node table on a device. Handles as elsewhere; every function returns a
   code of abi/error.h. The order of calls is create, place_weights, add_cubin, offer_gemms, place,
   build, steps. One call at a time, except add_cubins and offer_gemms, which other threads may
   call before place, and gemm_order, supply_gemms and finish_gemms, which they may call after
   offer_gemms.
 */
#pragma once

#include "abi/vcc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Check a table (code 7) and keep a copy; memory will come from `arena`. */
VCC_API int32_t vcc_player_create(uint64_t arena, const void* table, uint64_t size,
                                  uint64_t* player);
/* Another table over the memory and modules of `first` (player.h), which is placed before it. */
VCC_API int32_t vcc_player_create_beside(uint64_t first, const void* table, uint64_t size,
                                         uint64_t* player);
/* Another table with memory of its own, and the modules of `other`, which need not be placed. */
VCC_API int32_t vcc_player_create_apart(uint64_t other, const void* table, uint64_t size,
                                        uint64_t* player);
VCC_API int32_t vcc_player_close(uint64_t player);

/* Load a cubin under its SHA-256 in hex; the caller has verified it. */
VCC_API int32_t vcc_player_add_cubin(uint64_t player, const char* digest, const void* cubin,
                                     uint64_t size);

/* The same for many: `count` rows of 48 bytes {32 bytes SHA-256, u64 offset, u64 bytes} over
   `data`. The first that is refused ends it. */
VCC_API int32_t vcc_player_add_cubins(uint64_t player, const void* data, uint64_t size,
                                      const void* cubins, uint64_t count);

/* What a step multiplies and which kernels of the table can do it, as JSON (supply.cpp). */
VCC_API int32_t vcc_player_products(uint64_t player, const char** json);

/* What the GEMM store has: `count` rows of 40 bytes {i64 rows, u32 n, k, dtype, flags, route: the
   measured choice 0 none 1 the store's entry 2 the table's kernel, u8 out, u8 scales, u16 0, u64
   workspace bytes}. A step whose choice is an entry waits until it comes. `needed` [count] bytes: 1
   where some step may take the entry, so that it has to come. */
VCC_API int32_t vcc_player_offer_gemms(uint64_t player, const void* offers, uint64_t count,
                                       void* needed);

/* The offers that graphs (rows as of vcc_player_build) take, each once, in the order in which they
   are needed: `found` numbers at `order`, which has room for `room`. */
VCC_API int32_t vcc_player_gemm_order(uint64_t player, const void* descriptors, uint64_t count,
                                      void* order, uint64_t room, uint64_t* found);

/* Entries that have come, in `data`: `cubins` rows as of add_cubins, verified by the caller, and
   `entries` rows of 24 bytes {u32 offer, u32 0, u64 offset, u64 bytes} of node tables. `taken`
   [entry_count] bytes: 0 for one that was refused and is withdrawn; `trouble` says why the first
   was. */
VCC_API int32_t vcc_player_supply_gemms(uint64_t player, const void* data, uint64_t size,
                                        const void* cubins, uint64_t cubin_count,
                                        const void* entries, uint64_t entry_count, void* taken,
                                        const char** trouble);

/* Nothing more comes: what was offered and is not there counts as never offered. */
VCC_API int32_t vcc_player_finish_gemms(uint64_t player);

/* Bytes of each kind of region with so many KV blocks; offers may raise `scratch`. */
VCC_API int32_t vcc_player_bytes(uint64_t player, int64_t blocks, uint64_t* weights,
                                 uint64_t* cache, uint64_t* io, uint64_t* workspace,
                                 uint64_t* scratch);

/* Give the weights memory before everything else has its own; where, and their tensors, as JSON
   (describe.cpp). */
VCC_API int32_t vcc_player_place_weights(uint64_t player, const char** json);

/* Give every region memory: `blocks` KV blocks in addresses, `mapped` of them in memory; `slots`
   input slots (3 or more keep the device busy), `ring` rows of decode tokens. */
VCC_API int32_t vcc_player_place(uint64_t player, int64_t blocks, int64_t mapped, uint32_t slots,
                                 uint32_t ring);

/* Memory for the first `mapped` KV blocks; the memory of those behind is given back and their
   contents are lost. Waits for the device where it takes memory. `bytes`: of the cache now. Where
   memory runs out nothing changes. */
VCC_API int32_t vcc_player_map_blocks(uint64_t player, int64_t mapped, uint64_t* bytes);

/* Tensors, regions, slots and the token ring as JSON (describe.cpp). */
VCC_API int32_t vcc_player_describe(uint64_t player, const char** json);

/* Build graphs: `descriptors` are rows of seven int32 {mode 1 full 2 piecewise, T, B,
   uniform, sample, advance, adapted}. The first `hot` are there on return, the others come by
   `threads` threads. */
VCC_API int32_t vcc_player_build(uint64_t player, const void* descriptors, uint64_t count,
                                 uint32_t hot, uint32_t threads);

/* How many descriptors are wanted, ready, failed, and executable graphs there are; `failure` says
   why the first that failed did (it runs as plain launches). `wait`: until all are built. */
VCC_API int32_t vcc_player_graphs(uint64_t player, uint32_t wait, uint32_t* wanted, uint32_t* ready,
                                  uint32_t* failed, uint32_t* graphs, const char** failure);

/* The next input slot, once nothing reads it any more. */
VCC_API int32_t vcc_player_slot(uint64_t player, uint32_t* slot);

/* Run one step from a slot. `mode` 0 plain 1 full 2 piecewise; `parts` bit 0 uniform, 1 sample,
   2 advance, 3 adapted (a row has an adapter); `rows` sequences without padding; `inputs` groups to
   send: bit 0 step, 1 sampling, 2 token; `flags` bit 0 read logits, 1 read tokens (into the ring's
   first row), 2 do not wait. `logits` is where they lie (pinned, valid until the next step). */
VCC_API int32_t vcc_player_step(uint64_t player, uint32_t mode, int64_t tokens, int64_t seqs,
                                uint32_t parts, uint32_t rows, uint32_t slot, uint32_t inputs,
                                uint32_t flags, uint64_t* logits);

/* Up to `steps` decode steps by the device alone; row i of the ring holds the tokens of step i:
   ids, or -1 - id where the logits that it was chosen from had NaN or infinity. `fresh` sends all
   inputs of the slot (the state before the first advance), otherwise only the `changed` rows of the
   block table. Token ids that end sequence b: stops[stop_start[b] .. stop_start[b+1]). The run ends
   when `finish` sequences have ended, when control[0] is set, or after the last step; control[1]
   counts the steps whose tokens are there. `gaps` [steps] in ns. */
VCC_API int32_t vcc_player_decode(uint64_t player, uint32_t mode, int64_t size, uint32_t parts,
                                  uint32_t rows, uint32_t steps, uint32_t fresh, uint32_t slot,
                                  const void* changed, uint32_t changes, const void* stops,
                                  const void* stop_start, uint32_t finish, uint32_t ahead,
                                  void* control, void* gaps, uint32_t* done);

VCC_API int32_t vcc_player_wait(uint64_t player);
VCC_API int32_t vcc_player_read(uint64_t player, uint64_t address, void* to, uint64_t size);
VCC_API int32_t vcc_player_write(uint64_t player, uint64_t address, const void* from,
                                 uint64_t size);

/* `count` elements, of dtype codes of node tables: of the device into an array, and of an array to
   any place of the host. Floats are rounded as torch does; other dtypes stay as they are. */
VCC_API int32_t vcc_player_read_values(uint64_t player, uint64_t address, uint32_t dtype, void* to,
                                       uint32_t wanted, uint64_t count);
VCC_API int32_t vcc_move_values(const void* from, uint32_t dtype, uint64_t to, uint32_t wanted,
                                uint64_t count);

/* Who computes each matrix product of a step, and the player's own account, as JSON. */
VCC_API int32_t vcc_player_gemms(uint64_t player, int64_t tokens, int64_t seqs, const char** json);
VCC_API int32_t vcc_player_stats(uint64_t player, const char** json);

#ifdef __cplusplus
}
#endif
