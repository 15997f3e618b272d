// How far a search is, for whoever waits for it: a line that changes on a terminal, else a line every ten seconds.
#pragma once
#include "foresight/search.h"

typedef struct SearchProgress {
  FILE *out; // NULL: nobody waits
  double begun, next;
  bool terminal, shown;
} SearchProgress;

void search_progress_begin(SearchProgress *progress, FILE *out);
// Cheap where it is not yet time. end: a line on a terminal is wiped.
void search_progress(SearchProgress *progress, const Search *search, bool end);
