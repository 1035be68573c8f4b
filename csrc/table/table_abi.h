/* The C ABI of node tables. */
#pragma once

#include "abi/vcc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Check the bytes of a table: code 7 and the section, record and reason where it is refused. */
VCC_API int32_t vcc_table_check(const void* data, uint64_t size);

/* Check a table and write the values of its expressions at `count` sizes, one a symbol in order, to
   `values`, which holds `capacity` numbers; `needed` is how many there are. Code 9 for a size that
   the table does not declare, 2 where `capacity` is too small. */
VCC_API int32_t vcc_table_evaluate(const void* data, uint64_t size, const int64_t* sizes,
                                   uint64_t count, int64_t* values, uint64_t capacity,
                                   uint64_t* needed);

#ifdef __cplusplus
}
#endif
