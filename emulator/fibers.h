// Blocks of kernels: each of their threads is a fiber of the thread that runs them.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Calls `kernel` as each thread of each block, in an order that is drawn anew at each barrier. Ends the program where
// threads wait for each other in different places.
void fibers_run(const char *name, void (*kernel)(const void *arguments), const void *arguments, int64_t blocks,
                int threads);
// Where the thread of this kernel is that runs now, "block 3, thread 17"; 0: none runs.
int fibers_where(char *text, size_t size);
// The bytes of shared memory that the last kernel had, rounded to 16 each.
size_t fibers_shared(void);

// All lanes of a warp come to it, and each gives some bytes: those of lane i are then in the i-th row, until the warp's
// next exchange. They are read when the last lane has come. what: as "shuffle", for who does not come.
enum { FIBERS_EXCHANGED = 32 };
const char (*fibers_exchange(const void *mine, size_t bytes, const char *what, int line))[FIBERS_EXCHANGED];
