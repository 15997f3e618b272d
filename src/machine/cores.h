// Kernels on the cores of one machine: the time of a kernel depends on which other ranks compute at the same time.
// Ranks share caches and memory, and a rank that waits may lend its threads to those that compute (run.work_stealing).
//
// Kernels of all coordinates are under way at once. Time passes from the end, or the begin, of one of them to the next,
// and between two of these every kernel runs at a rate that follows from the ranks that compute.
#pragma once

typedef struct Cores Cores;

// Seconds of a kernel while its rank's coordinate computes alone, without help; with the threads of all others that
// help; while all ranks compute.
typedef struct CoreSeconds { double alone, helped, full; } CoreSeconds;

typedef struct CoresOptions {
  int coordinates, ranks; // pipeline coordinates; ranks of each of them
  int threads, helpers;   // of a rank; of others that may help it
  int cores;              // of the machine
} CoresOptions;
Cores *cores_create(const CoresOptions *options);
void cores_free(Cores *cores); // NULL is fine

// The kernel of a coordinate, whose clock is at *now: 0: it has begun, or is still running; ask again when time has
// passed. 1: it is done, at *now. busy: until when a collective in flight takes cores too.
int cores_run(Cores *cores, int coordinate, const CoreSeconds *kernel, double busy, double *now);
// Nobody can do anything else before a kernel ends: one does. 0: none is under way.
int cores_pass(Cores *cores);
