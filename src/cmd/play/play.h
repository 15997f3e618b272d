// The data of `plait explain --play`: an executed step as JSON, which the page src/cmd/play/play.html draws. It is read
// off the Programs: order and buffers from the walk, as schedule_replay does it, bytes from the memory plan, traffic
// from program/traffic.h.
#pragma once
#include "runtime/job.h"
#include <jansson.h>

// A view is one recipe's step; play.html documents the fields where it reads them. The caller releases it with
// json_decref. Times are FLOPs of a rank; the bodies BEGIN and END, which have hardly any, take no time in it.
int play_view(const Job *job, json_t **view, Error *error);

// ---- its parts ------------------------------------------------------------------------------------------------------

typedef Vec(uint32_t) AxesList;
// The data of one view while it is made. Names of ops and sets of axes are listed once, and meant by index.
typedef struct Play {
  const Job *job;
  const Program *program;   // of the pipeline rank that is written
  int *parameter;           // per tensor: the parameter whose value it is, whole or in part; -1: none
  int *group;               // per Variable: where a parameter belongs on this pipeline rank; -1: nowhere
  json_t *ops, *sets;
  AxesList *axes;           // of the sets
} Play;

// Parameters of one layer are shown together: group 0 is the embedding, 1 + l layer l, 1 + layers the head.
int play_layer_group(const Play *play, int layer);
int play_op(Play *play, Op op);
int play_set(Play *play, uint32_t axes);

// Fills play->parameter and play->group. A parameter belongs to the first layer that computes with it.
void play_find_parameters(Play *play);
// [{"group": number, "forms": {"parameters": [section, …], "copies", "gradients", "optimizer", "versions"}}]; a section
// is [bytes of the whole, set of axes that cut it, set of axes of its owners (-1: every rank has its part), owner].
json_t *play_groups(Play *play);
// The ranks of the Program's coordinate that are shown, so that every axis shows something: [[rank, "dp 1 tp 0"], …].
json_t *play_ranks(const Program *p);
// Gives every set of axes its index by shown rank: {"3": 1}.
void play_index_sets(const Play *play, const json_t *coordinates);

// A collective: what it moves, over which ranks, and the bytes that a rank sends.
json_t *play_collective(Play *play, const Node *node, int microbatch);

// A body: its steps, which are runs of instructions of one layer, cut where a collective starts or is waited for, and
// the bytes that are left in its microbatch's slot afterwards. `step_of`: (instructions + 1) the step of each
// instruction; the caller frees it.
json_t *play_body(Play *play, const Body *body, Region region, Phase phase, int **step_of);
