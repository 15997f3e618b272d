// Which outputs are made in the memory of an input that is needed no more.
#pragma once
#include "program/program.h"

// (tensors) the tensor in whose memory each lies: itself, or the first of those that took each other's place. Where
// `within_areas`, only tensors of one area share. The caller frees it.
int *in_place_roots(const Program *p, int within_areas);
