// When a rank saves and how, as the steps of a run pass.
#pragma once
#include "train/trainer.h"

// Saves step x->step: while the next steps run where `more` follow and the run saves later, else at once. Collective.
int saving_save(Training *x, bool more, Error *error);
// Waits for the checkpoint that is being written, if any. Collective.
int saving_settle(Training *x, Error *error);
