// One rank's runs, which those of meshes are held to.
#pragma once
#include "compare.h"

// What one rank makes of a case: of its model, sizes, precision, steps and settings, but for those of meshes. Each is
// run once and kept until one_rank_forget, for all cases of which it is the same. With `records` the result has the
// choices of experts; with `follows` one rank makes these. fresh: it was run now; may be NULL.
const ParityResult *one_rank_run(const ParityCase *c, const char *corpus, int *fresh);
void one_rank_forget(void);
int one_rank_end(void **state); // group fixture of cmocka, in the place of corpora_remove, which it calls: forgets all
// What of a layout's settings changes the numbers of one rank as well: not the mesh, nor how it is used, nor the parts
// in which experts work; but the type of gradients.
void one_rank_settings(const char *settings, char *out, size_t size);

// Runs the case and prints how far it is from one rank. 1: the run failed, a measure is beyond the tolerance, the
// initial parameters have other bits, or a norm is not its gradients'. The caller frees `result`, which may be NULL.
int one_rank_differs(const ParityCase *c, const char *corpus, ParityResult *result);
