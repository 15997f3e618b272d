// A comparison as text.
#include "base/units.h"
#include "machine/devices.h"
#include "foresight/compare.h"
#include <string.h>

static int link_width(const Comparison *c, int level) {
  int n = (int)strlen(c->cluster->level[level].name);
  return n > 8 ? n : 8;
}

// Ranks along the context belong to a mesh's name only where some row has them: that is one that was searched.
static int has_contexts(const Comparison *c) {
  int most = 1;
  for (int i = 0; i < STRATEGIES; i++)
    if (comparison_has(c, (Strategy)i) && c->row[i].cp > most) most = c->row[i].cp;
  return most > 1;
}

static void print_header(const Comparison *c, FILE *out) {
  // `·` has two bytes
  fprintf(out, "%-16s %*s", "strategy", has_contexts(c) ? 11 + 3 : 8 + 2, has_contexts(c) ? "pp·dp·cp·tp" : "pp·dp·tp");
  fprintf(out, " %8s %8s %6s %8s %8s %8s %8s %8s %8s %9s", "step", "tokens/s", "bubble", "weights", "grads", "optim.",
          "activ.", "rest", "in all", "fits");
  for (int i = 0; i < c->cluster->levels; i++) fprintf(out, " %*s", link_width(c, i), c->cluster->level[i].name);
  fputc('\n', out);
}

static void print_row(const Comparison *c, Strategy strategy, FILE *out) {
  const CompareRow *row = &c->row[strategy];
  const CompareNumbers *n = &row->number;
  char mesh[40], over[48] = "yes", bubble[16] = "-";
  fprintf(out, "%-16s ", strategy_names[strategy]);
  if (*row->why) {
    fprintf(out, "cannot be: %s\n", row->why);
    return;
  }
  int contexts = has_contexts(c);
  if (contexts) snprintf(mesh, sizeof mesh, "%d·%d·%d·%d", row->pp, row->dp, row->cp, row->tp);
  else snprintf(mesh, sizeof mesh, "%d·%d·%d", row->pp, row->dp, row->tp);
  if (!n->fits) snprintf(over, sizeof over, "+%s", units_bytes(n->bytes - n->room).s);
  if (row->pp > 1) snprintf(bubble, sizeof bubble, "%.1f %%", 100 * n->bubble);
  fprintf(out, "%*s %8s %8s %6s", contexts ? 11 + 3 : 8 + 2, mesh, units_seconds(n->step).s,
          units_count(n->tokens_per_s).s, bubble);
  for (int i = 0; i < MEMORY_PARTS; i++) fprintf(out, " %8s", units_bytes(n->memory[i]).s);
  fprintf(out, " %8s %9s", units_bytes(n->bytes).s, over);
  for (int i = 0; i < c->cluster->levels; i++)
    fprintf(out, " %*s", link_width(c, i), n->sent[i] > 0 ? units_bytes(n->sent[i]).s : "-");
  fputc('\n', out);
}

static void print_change(const CompareRow *row, FILE *out) {
  const CompareNumbers *was = &row->number, *n = &row->changed;
  if (!*row->change) fputs(was->fits ? "none of those tried" : "none of those tried saves memory", out);
  else if (was->fits)
    fprintf(out, "%s: %s, %.1f %% less", row->change_settings, units_seconds(n->step).s,
            100 * (1 - n->step / was->step));
  else if (n->fits)
    fprintf(out, "%s: fits, %s, a step takes %s", row->change_settings, units_bytes(n->bytes).s,
            units_seconds(n->step).s);
  else
    fprintf(out, "%s: %s, still %s too much", row->change_settings, units_bytes(n->bytes).s,
            units_bytes(n->bytes - n->room).s);
  fputc('\n', out);
}

static void print_limits(const Comparison *c, FILE *out) {
  fprintf(out, "\n%-16s %-44s %s\n", "strategy", "limited by (a tenth more of it saves)",
          "the smallest change that helps");
  for (int i = 0; i < STRATEGIES; i++) {
    const CompareRow *row = &c->row[i];
    char limit[96] = "nothing that was tried";
    if (!comparison_has(c, (Strategy)i)) continue;
    if (row->limit.gain > 0)
      snprintf(limit, sizeof limit, "%s %.1f %%", row->limit.resource, 100 * row->limit.gain);
    if (!row->number.fits) snprintf(limit, sizeof limit, "memory (device.memory)");
    fprintf(out, "%-16s %-44s ", strategy_names[i], limit);
    print_change(row, out);
  }
}

void comparison_print(const Comparison *c, FILE *out) {
  const CompareSizes *s = &c->size;
  fprintf(out, "%d rank%s of %s (%s), %d in a node; a model of %s parameters\n", s->ranks, s->ranks > 1 ? "s" : "",
          c->cluster->device.name, c->cluster->name, s->node, units_count(c->parameters).s);
  double room = devices_room(c->cluster, s->ranks, NULL, 0);
  fprintf(out, "memory of the rank that needs the most, of %s; by link: bytes that a rank sends in a step\n\n",
          units_bytes(room).s);
  print_header(c, out);
  int limits = 0;
  for (int i = 0; i < STRATEGIES; i++) {
    if (*c->row[i].why || comparison_has(c, (Strategy)i)) print_row(c, (Strategy)i, out);
    limits |= c->row[i].limit.gain > 0 || *c->row[i].change;
  }
  for (const NotBuilt *n = strategies_not_built; n->name; n++) fprintf(out, "%-16s not built: %s\n", n->name, n->what);
  if (limits) print_limits(c, out);
}
