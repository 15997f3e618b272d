// Chaos, for tests: what a correct Program cannot notice. With PLAIT_CHAOS=SEED in the environment (any number above 0) memory
// is NaN from when the plan gives it free until it is written again (workspace, slots, mail, results of REDUCE, kernels'
// scratch), buffers are packed in a random order, and collectives and transfers start after random delays.
#pragma once
#include "program/program.h"

typedef struct Chaos Chaos;

// PLAIT_CHAOS as a number; 0: none.
uint64_t chaos_seed(void);
// For one executor's Program, whose working memory is `work`. NULL without PLAIT_CHAOS; the others then do nothing.
Chaos *chaos_create(const Program *p, char *work, uint64_t salt);
void chaos_destroy(Chaos *c);

void chaos_begin_step(Chaos *c);
void chaos_enter_slot(Chaos *c, int stage, int microbatch);
void chaos_enter_mail(Chaos *c, int stage, Phase phase, int microbatch);
void chaos_begin_body(Chaos *c);
void chaos_before(Chaos *c, const Node *n);
void chaos_after(Chaos *c, const Node *n);
