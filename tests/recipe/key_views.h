// How compiled Programs show the value of a key of mesh.* or parallel.*: by the sizes of shards, the placements of
// tensors, the order of actions, the collectives. A view may not ask the recipe for its own key, nor what passes were
// told of it.
// Include cmocka.h first.
#pragma once
#include "../compiled.h"
#include "asked.h"

enum { SHOWN_TEXT = 200 };
typedef enum Shown { NOTHING_TO_SEE = -1, ANOTHER, AS_ASKED } Shown;
// One case and the value of one key; `says` gets what is there instead.
typedef struct View {
  const Asked *asked;
  const Case *c;
  const Graph *g;
  const Program *p; // of the first pipeline rank
  const Mesh *mesh;
  char says[SHOWN_TEXT];
} View;

Shown number(View *v, const char *value, int there);
Shown word(View *v, const char *value, const char *there);
Shown truth(View *v, const char *value, int there);
uint32_t axes_with(const Mesh *mesh, AxisRole role);
uint32_t axes_of_part(const Mesh *mesh, AxisId part);
int dim_of(const Shape *s, DimName dim); // -1: it has none
int all_pipeline_ranks(const View *v);
int ranks_that_share(const View *v); // weights

// One a key.
Shown shows_pp(View *v, const char *value);
Shown shows_dp(View *v, const char *value);
Shown shows_cp(View *v, const char *value);
Shown shows_tp(View *v, const char *value);
Shown shows_zero(View *v, const char *value);
Shown shows_reshard(View *v, const char *value);
Shown shows_shard_group(View *v, const char *value);
Shown shows_unsplit(View *v, const char *value);
Shown shows_grad_dtype(View *v, const char *value);
Shown shows_accumulate(View *v, const char *value);
Shown shows_update(View *v, const char *value);
Shown shows_sequence(View *v, const char *value);
Shown shows_tensor(View *v, const char *value);
Shown shows_rows(View *v, const char *value);
Shown shows_depth(View *v, const char *value);
Shown shows_summa(View *v, const char *value);
Shown shows_context(View *v, const char *value);
Shown shows_ulysses(View *v, const char *value);
Shown shows_ep(View *v, const char *value);
Shown shows_recompute(View *v, const char *value);
Shown shows_recompute_layers(View *v, const char *value);
Shown shows_memory(View *v, const char *value);
Shown shows_pipeline(View *v, const char *value);
Shown shows_logits(View *v, const char *value);
Shown shows_stages_per_rank(View *v, const char *value);
Shown shows_layers(View *v, const char *value);
Shown shows_overlap(View *v, const char *value);
Shown shows_bucket_mb(View *v, const char *value);
Shown shows_gather(View *v, const char *value);
