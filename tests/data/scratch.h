// A temporary folder for one test program.
#pragma once

// Creates the folder; the path stays valid until scratch_remove. Both abort on failure.
const char *scratch_create(char path[64]);
void scratch_remove(const char *path);

// PATH/NAME as a fresh string that the caller frees.
char *scratch_path(const char *path, const char *name);
