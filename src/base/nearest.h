// The nearest valid word to a mistyped one, for messages.
#pragma once

// Edit distance of a and b (insert, delete, replace, swap of neighbours each cost 1); long strings are cut at 63 bytes.
int nearest_distance(const char *a, const char *b);

// The candidate nearest to `word`, or NULL when none is near enough to be meant.
const char *nearest_word(const char *word, const char *const *candidates, int count);
