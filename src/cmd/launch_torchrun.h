// torchrun's words on the command line of plait launch: what they mean here, or what takes their place.
#pragma once
#include "base/error.h"

// Rewrites options, in place: --nproc_per_node is --nproc-per-node, --tee alone is --tee=3, "--tee 3" is --tee=3. argv
// keeps its end, and gets no longer. Returns how many words there are.
int torchrun_take_words(int argc, char **argv);

// --rdzv-conf KEY=VALUE,…: what plait launch has under another name, or decides itself, is refused with that name.
// *patience is what timeout=SECONDS says. text NULL: not given.
int torchrun_take_conf(const char *text, double *patience, Error *error);
