// The frontier of memory against time that parallel.recompute auto chose from.
#include "train/plan_recompute.h"
#include "base/units.h"
#include <math.h>
#include <stdlib.h>

enum { LONGEST = 200 }; // letters of a list

static void print_row(const RecomputeChoice *choice, const RecomputePoint *p, const char *name, bool exact, FILE *out) {
  char *list = recompute_list_text(&p->list);
  fprintf(out, "  %-22s", name);
  if (exact) fprintf(out, " %16lld", (long long)p->bytes);
  else fprintf(out, " %12s", units_bytes((double)p->bytes).s);
  fprintf(out, " %8.3f ×   [%.*s%s]\n", choice->kept.seconds > 0 ? p->seconds / choice->kept.seconds : 1, LONGEST, list,
          strlen(list) > LONGEST ? " …" : "");
  free(list);
}

static bool is_chosen(const RecomputeChoice *choice, const RecomputePoint *p) {
  return p->bytes == choice->chosen.bytes && p->seconds <= choice->chosen.seconds;
}

void plan_print_recompute(const Recipe *r, const RecomputeChoice *choice, bool exact, FILE *out) {
  if (!choice) return;
  const RecomputePoint *chosen = &choice->chosen, *more = NULL;
  bool said = false;
  fprintf(out, "\nrecompute auto: memory of a rank, and the time of its blocks beside keeping everything\n");
  for (int i = 0; i < choice->points; i++) {
    const RecomputePoint *p = &choice->point[i];
    if (!said && p->bytes >= chosen->bytes) {
      print_row(choice, chosen, "chosen", exact, out);
      said = true;
    }
    if (is_chosen(choice, p)) continue;
    if (!more && p->bytes > chosen->bytes) more = p;
    print_row(choice, p, p->bytes > r->parallel.memory ? "needs more" : "fits", exact, out);
  }
  if (!said) print_row(choice, chosen, "chosen", exact, out);
  fprintf(out, "  the fastest list that was found within parallel.memory %s",
          units_bytes((double)r->parallel.memory).s);
  if (more) fprintf(out, "; the next faster one needs %s", units_bytes((double)more->bytes).s);
  else if (chosen->seconds <= choice->kept.seconds) fprintf(out, ": nothing has to be computed again");
  fprintf(out, "\n  times are of kernels, %s; what communication repeats is not counted\n",
          choice->by_seconds ? "by the cluster's seconds"
                             : "by their FLOPs and bytes: run.cluster gives seconds");
}
