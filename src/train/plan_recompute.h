// The choice of parallel.recompute auto and its reason, as text.
#pragma once
#include "setup/recompute_auto.h"

// The chosen list among others that need less memory or less time. exact: whole bytes.
void plan_print_recompute(const Recipe *recipe, const RecomputeChoice *choice, bool exact, FILE *out);
