// What all machines of a job must have in common, in lines "NAME\tVALUE": options, keys of the recipe or the program.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// "run.seed is 8 here and 7 there; …": up to three differences, with both values. false: there is none.
bool job_what_differs(const char *here, const char *there, char *text, size_t size);
