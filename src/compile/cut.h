// Which contiguous layers each virtual pipeline stage has.
#pragma once
#include "base/stage_set.h"

// sum[l]: the cost of everything before layer l, the embedding included, so that sum[0] is the embedding's alone;
// sum[layers + 1]: of all, with the head. Stage s gets the layers from cut[s] to below cut[s + 1]: at least one, but
// the last stage, which has the head, may get none. Takes up to MAX_STAGES stages, no more than there are layers.
void cut_layers(const double *sum, int layers, int stages, StageMap map, int *cut);
