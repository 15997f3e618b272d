// How many tokens a tick has at most where infer.tokens is auto, by what ticks take.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { TICK_SIZES = 32 };

// Beside requests that decode, a tick with a part of a prompt may take as long as this many without it.
#define TICK_MOST_SLOWER 2.5

int tick_size_of(int64_t tokens); // the least i with 2^i >= tokens
// 2^i tokens, i below `sizes`. seconds (sizes): of a tick of 2^i tokens. Of prompts alone, the least size in which a
// token costs no more than in any other, within 5%; a larger one where that still takes no more than TICK_MOST_SLOWER
// times as long as a tick of `decode` tokens.
int tick_size_choose(const double *seconds, int sizes, int decode);
