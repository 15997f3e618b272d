// Measured kernels: what a probe saw of a machine (foresight/probe.h), and from it the seconds of calls that it never
// saw.
//
// Calls of one kind (op, dtype, operands, threads) share a model: seconds are a sum of a constant and of what the call
// works through (FLOPs and elements of products, pairs of attention, bytes of everything else), whose coefficients are
// those of least relative squares that are not negative. The residuals are averaged over the measured calls by their
// distance in the logarithms of their sizes.
#pragma once
#include "base/error.h"
#include "op/work.h"
#include "machine/facts.h"
#include "program/program.h"
#include <stdio.h>

// The features by which calls are compared: fills in everything of *kernel but threads, active and seconds. How many
// operands a node has counts, so that an op with and without a bias, say, is not one kind; and so does whether its data
// is in memory only: before and after the microbatches, where ranks touch more in a step than a cache of `cache` bytes.
void kernel_describe(const Program *program, const Node *node, const OpWork *work, double cache,
                     MeasuredKernel *kernel);

// The first sort of call of which there is no measured kernel, in words: products, attention, or what moves bytes.
// NULL: there are some of each.
const char *kernel_table_lacks(const Cluster *cluster);

// NULL: nothing was measured. The caller frees it, before the cluster.
KernelTable *kernel_table_create(const Cluster *cluster);
void kernel_table_free(KernelTable *table); // NULL is fine

// Seconds of a call on a rank of `threads` threads, while `active` threads of the machine compute, its own among them.
// Combinations of threads that were not measured are taken from the nearest ones. Of an op that was never measured:
// what another dtype of it, or else an op that moves as many bytes, takes; *guessed is set to 1 then. `device`: whose
// rates may differ from those that were measured (--what-if): products go with `matrix`, all else with `bandwidth`.
double kernel_table_seconds(const KernelTable *table, const DeviceFacts *device, const MeasuredKernel *call,
                            int threads, int active, int *guessed);

// Lines of a cluster file: KERNEL_COLUMNS, then one kernel a line. first_line: of `text` in the file that messages
// name.
#define KERNEL_COLUMNS "op,dtype,threads,active,kind,a,b,c,d,flops,bytes,seconds"
int kernel_lines_parse(Cluster *cluster, const char *name, int first_line, const char *text, Error *error);
void kernel_line_print(const MeasuredKernel *kernel, FILE *out);
