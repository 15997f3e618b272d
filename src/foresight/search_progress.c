// Progress of a search. See search_progress.h.
#include "foresight/search_progress.h"
#include "base/clock.h"
#include "base/units.h"
#include <unistd.h>

static const double first = 2, on_terminal = 0.5, in_file = 10; // seconds

void search_progress_begin(SearchProgress *p, FILE *out) {
  *p = (SearchProgress){.out = out, .begun = clock_seconds()};
  p->next = p->begun + first;
  p->terminal = out && isatty(fileno(out));
}

void search_progress(SearchProgress *p, const Search *s, bool end) {
  if (!p->out) return;
  if (end) {
    if (p->terminal && p->shown) fputs("\r\033[K", p->out);
    fflush(p->out);
    return;
  }
  double now = clock_seconds();
  if (now < p->next) return;
  p->next = now + (p->terminal ? on_terminal : in_file);
  p->shown = true;
  const SearchCount *c = &s->count;
  fprintf(p->out, "%ssearching for %s: %s plans, %lld bounded by layers, %lld estimated, %lld compiled whole",
          p->terminal ? "\r\033[K" : "", units_duration(now - p->begun).s, units_count((double)c->plans).s,
          (long long)c->bounded, (long long)c->estimated, (long long)c->compiled);
  if (s->plans) fprintf(p->out, "; best so far %s a step", units_seconds(s->plan[0].seconds).s);
  if (!p->terminal) fputc('\n', p->out);
  fflush(p->out);
}
