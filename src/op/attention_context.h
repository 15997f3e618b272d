// The algorithms of ATTENTION and of its gradient over the ranks of mesh.cp.
#pragma once
#include "op/algorithm.h"

enum { ATTENTION_ALGORITHMS = 3 };
extern const Algorithm attention_algorithms[ATTENTION_ALGORITHMS], attention_grad_algorithms[ATTENTION_ALGORITHMS];
