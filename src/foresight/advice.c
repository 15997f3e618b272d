// Advice: when the rules of foresight/advice.def hold, and their sentences.
#include "foresight/advice.h"
#include "base/fault.h"
#include "base/units.h"
#include "machine/devices.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ADVICE(id, name, told) [ADVICE_##id] = name,
const char *const advice_names[ADVICES] = {
#include "foresight/advice.def"
};
#undef ADVICE
#define ADVICE(id, name, told) [ADVICE_##id] = told,
const char *const advice_told[ADVICES] = {
#include "foresight/advice.def"
};
#undef ADVICE

const char *advice_verdict_name(AdviceVerdict verdict) {
  static const char *const names[] = {"open", "confirmed", "contradicted"};
  return names[verdict];
}

// ---- what the rules ask ---------------------------------------------------------------------------------------------

// Links within a node as of NVLink, and a network from which a node gets 100 Gb/s: the least that counts as fast.
static const double fast_link = 100e9, fast_network = 12.5e9; // bytes/s

static const CompareNumbers *numbers(const Comparison *c, Strategy s) { return &c->row[s].number; }
static int fits(const Comparison *c, Strategy s) { return comparison_has(c, s) && numbers(c, s)->fits; }
static double room(const Comparison *c) { return devices_room(c->cluster, c->size.ranks, NULL, 0); }

static int links_are_fast(const Comparison *c) {
  const LevelFacts *l = &c->cluster->level[0];
  return c->cluster->levels && l->kind != LEVEL_BUS && l->bandwidth * l->ports >= fast_link;
}

// bytes/s that a node sends to others.
static double network(const Comparison *c) {
  const LevelFacts *l = &c->cluster->level[c->cluster->levels - 1];
  return l->ports * l->bandwidth / fmax(l->oversubscription, 1);
}

static double sent(const Comparison *c, Strategy s) {
  double bytes = 0;
  for (int i = 0; i < c->cluster->levels; i++) bytes += numbers(c, s)->sent[i];
  return bytes;
}

static int applies(const Comparison *c, AdviceRule rule) {
  int many = c->size.ranks > 1, nodes = c->size.nodes > 1, one = fits(c, STRATEGY_ONE), layer = c->layer <= room(c);
  switch (rule) {
  case ADVICE_PLAIN: return !many && one;
  case ADVICE_DATA: return many && one;
  case ADVICE_OFFLOAD: return comparison_best(c) < 0;
  case ADVICE_TILING: return !layer && comparison_best(c) < 0;
  case ADVICE_LAYER: return !layer && many;
  case ADVICE_NODE_ALIKE: return many && !nodes && !one && links_are_fast(c);
  case ADVICE_NODE_PP: return many && !nodes && !one && !links_are_fast(c);
  case ADVICE_FAST: return nodes && !one && network(c) >= fast_network;
  case ADVICE_SLOW: return nodes && !one && network(c) < FAULT(advice_every_network_is_fast, fast_network, 0);
  case ADVICE_TP_ACROSS: return comparison_has(c, STRATEGY_TP_ACROSS);
  case ADVICE_PP_ZERO: return comparison_has(c, STRATEGY_PP_ZERO_1) && comparison_has(c, STRATEGY_PP_ZERO_2);
  case ADVICES: break;
  }
  return 0;
}

// ---- sentences ------------------------------------------------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static void say(Advice *a, const char *format, ...) {
  size_t n = strlen(a->text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(a->text + n, sizeof a->text - n, format, arguments);
  va_end(arguments);
}

static void say_steps(const Comparison *c, const Strategy *list, int n, Advice *a) {
  for (int i = 0, said = 0; i < n; i++) {
    const CompareRow *row = &c->row[list[i]];
    const char *join = said ? ", " : "";
    if (!comparison_has(c, list[i])) continue;
    said = 1;
    say(a, "%s%s %s", join, strategy_names[list[i]], units_seconds(row->number.step).s);
    if (!row->number.fits) say(a, " (%s over)", units_bytes(row->number.bytes - row->number.room).s);
  }
}

// The fastest of a list that fits; -1: none.
static int fastest(const Comparison *c, const Strategy *list, int n) {
  int best = -1;
  for (int i = 0; i < n; i++)
    if (fits(c, list[i]) && (best < 0 || numbers(c, list[i])->step < numbers(c, (Strategy)best)->step)) best = list[i];
  return best;
}

// The rule's strategies against all: it holds where one of them is the fastest that fits, or within 2% of it.
static void judge(const Comparison *c, const Strategy *list, int n, Advice *a) {
  int told = fastest(c, list, n), best = comparison_best(c);
  say_steps(c, list, n, a);
  if (best < 0) {
    say(a, "; none of them fits");
    return;
  }
  const CompareNumbers *b = numbers(c, (Strategy)best);
  int holds = told >= 0 && numbers(c, (Strategy)told)->step <= 1.02 * b->step;
  a->verdict = FAULT(advice_is_always_right, holds, 1) ? ADVICE_CONFIRMED : ADVICE_CONTRADICTED;
  if (a->verdict == ADVICE_CONFIRMED && told == best)
    say(a, "; %s is the fastest that fits", strategy_names[best]);
  else if (a->verdict == ADVICE_CONFIRMED)
    say(a, "; the fastest that fits, %s, takes %s", strategy_names[best], units_seconds(b->step).s);
  else if (told < 0)
    say(a, "; none of these fits, %s does and takes %s", strategy_names[best], units_seconds(b->step).s);
  else
    say(a, "; but %s takes %s, %.0f %% less than %s", strategy_names[best], units_seconds(b->step).s,
        100 * (1 - b->step / numbers(c, (Strategy)told)->step), strategy_names[told]);
}

#define LIST(...) (const Strategy[]){__VA_ARGS__}, (int)(sizeof((Strategy[]){__VA_ARGS__}) / sizeof(Strategy))

// bytes/s that a device has to the host's memory, or the disks, with the ranks of a node that share it.
static double space_bandwidth(const Comparison *c, const SpaceFacts *s) {
  int sharing = s->shared_by < c->size.node ? s->shared_by : c->size.node;
  return s->bandwidth / (sharing > 1 ? sharing : 1);
}

// A single change with which a row fits is less than an offload.
static void say_change_that_fits(const Comparison *c, Advice *a) {
  int best = -1;
  for (int i = 0; i < STRATEGIES; i++)
    if (*c->row[i].change && c->row[i].changed.fits && (i != STRATEGY_ONE || c->size.ranks == 1) &&
        (best < 0 || c->row[i].changed.step < c->row[best].changed.step))
      best = i;
  if (best >= 0)
    say(a, ". Without it, %s with %s fits and takes %s", strategy_names[best], c->row[best].change_settings,
        units_seconds(c->row[best].changed.step).s);
}

// Offload: the excess of the row that needs the least memory leaves the device once a step and comes back.
static void advise_offload(const Comparison *c, Advice *a) {
  int least = -1;
  for (int i = 0; i < STRATEGIES; i++)
    if (comparison_has(c, (Strategy)i) && (i != STRATEGY_ONE || c->size.ranks == 1) &&
        (least < 0 || numbers(c, (Strategy)i)->bytes < numbers(c, (Strategy)least)->bytes))
      least = i;
  if (least < 0) {
    say(a, "nothing could be compiled, so that nothing is known of what would have to be offloaded");
    return;
  }
  const CompareNumbers *n = numbers(c, (Strategy)least);
  double over = n->bytes - n->room;
  say(a, "nothing fits; %s comes closest with %s of %s. The excess, %s a rank, would leave the device and come back "
         "in every step (offload is not built): at least %s",
      strategy_names[least], units_bytes(n->bytes).s, units_bytes(n->room).s, units_bytes(over).s,
      units_bytes(2 * over).s);
  for (int i = 0; i < c->cluster->spaces; i++) {
    const SpaceFacts *s = &c->cluster->space[i];
    say(a, "%s %s to the %s%s", i ? ", or" : ", which takes", units_seconds(over / space_bandwidth(c, s) * 2).s,
        s->name, over * c->size.node > s->memory ? " (which is too small for that)" : "");
  }
  say(a, ", beside a step of %s", units_seconds(n->step).s);
  say_change_that_fits(c, a);
}

static void advise_tiling(const Comparison *c, Advice *a) {
  say(a, "the largest layer has %s of parameters and gradients, a device %s: computed in %.0f parts or more (tiling is "
         "not built), they would all come and go once a microbatch at least",
      units_bytes(c->layer).s, units_bytes(room(c)).s, ceil(c->layer / room(c)));
  if (c->cluster->spaces)
    say(a, ", %s from the %s", units_seconds(c->layer / space_bandwidth(c, &c->cluster->space[0])).s,
        c->cluster->space[0].name);
}

static void advise_layer(const Comparison *c, Advice *a) {
  static const Strategy tensor[] = {STRATEGY_TP_NODE, STRATEGY_TP_ACROSS, STRATEGY_THREE_D};
  int with = fastest(c, tensor, 3), best = comparison_best(c);
  say(a, "the largest layer has %s of parameters and gradients, a device %s", units_bytes(c->layer).s,
      units_bytes(room(c)).s);
  if (with >= 0) {
    say(a, "; %s (tp %d) fits and takes %s", strategy_names[with], c->row[with].tp,
        units_seconds(numbers(c, (Strategy)with)->step).s);
    a->verdict = ADVICE_CONFIRMED;
  } else if (best >= 0) {
    say(a, "; no tp fits, but %s does", strategy_names[best]);
    a->verdict = ADVICE_CONTRADICTED;
  } else say(a, "; no tp that was tried fits");
}

static void advise_alike(const Comparison *c, Advice *a) {
  static const Strategy list[] = {STRATEGY_PP, STRATEGY_ZERO_3, STRATEGY_TP_NODE};
  double least = INFINITY, most = 0;
  int fitting = 0, seen = 0;
  for (int i = 0; i < 3; i++) fitting += fits(c, list[i]);
  for (int i = 0; i < 3; i++) {
    if (fitting > 1 ? !fits(c, list[i]) : !comparison_has(c, list[i])) continue;
    least = fmin(least, numbers(c, list[i])->step), most = fmax(most, numbers(c, list[i])->step);
    seen++;
  }
  say_steps(c, list, 3, a);
  if (seen < 2) {
    say(a, "; there are no two to compare");
    return;
  }
  a->verdict = most <= 1.1 * least ? ADVICE_CONFIRMED : ADVICE_CONTRADICTED;
  say(a, "; %sthe slowest takes %.0f %% longer than the fastest",
      fitting > 1 && fitting < 3 ? "of those that fit, " : "", 100 * (most / least - 1));
}

static void advise_across(const Comparison *c, Advice *a) {
  const CompareNumbers *far = numbers(c, STRATEGY_TP_ACROSS), *near = numbers(c, STRATEGY_TP_NODE);
  say(a, "warning: tp %d over nodes waits for its collectives for %.0f %% of a step of %s",
      c->row[STRATEGY_TP_ACROSS].tp, 100 * far->tp_exposed, units_seconds(far->step).s);
  a->verdict = ADVICE_CONFIRMED;
  if (!comparison_has(c, STRATEGY_TP_NODE)) return;
  say(a, ", tp %d in a node for %.0f %% of %s", c->row[STRATEGY_TP_NODE].tp, 100 * near->tp_exposed,
      units_seconds(near->step).s);
  if (far->step <= near->step) a->verdict = ADVICE_CONTRADICTED;
}

static void advise_pp_zero(const Comparison *c, Advice *a) {
  const CompareNumbers *one = numbers(c, STRATEGY_PP_ZERO_1), *two = numbers(c, STRATEGY_PP_ZERO_2);
  double before = sent(c, STRATEGY_PP_ZERO_1), now = sent(c, STRATEGY_PP_ZERO_2);
  say(a,
      "on pp %d, ZeRO 2 sends %s a rank and step, ZeRO 1 %s (%.1f times as much); a step takes %s instead of %s, and "
      "a rank needs %s instead of %s",
      c->row[STRATEGY_PP_ZERO_2].pp, units_bytes(now).s, units_bytes(before).s, now / fmax(before, 1),
      units_seconds(two->step).s, units_seconds(one->step).s, units_bytes(two->bytes).s, units_bytes(one->bytes).s);
  a->verdict = now > 1.01 * before ? ADVICE_CONFIRMED : ADVICE_CONTRADICTED;
}

static void advise(const Comparison *c, Advice *a) {
  const CompareNumbers *one = numbers(c, STRATEGY_ONE);
  switch (a->rule) {
  case ADVICE_PLAIN:
    say(a, "one device takes %s of %s, and %s for a step", units_bytes(one->bytes).s, units_bytes(one->room).s,
        units_seconds(one->step).s);
    a->verdict = ADVICE_CONFIRMED;
    break;
  case ADVICE_DATA:
    say(a, "one device would take %s of %s. ", units_bytes(one->bytes).s, units_bytes(one->room).s);
    judge(c, LIST(STRATEGY_DDP, STRATEGY_ZERO_1), a);
    break;
  case ADVICE_OFFLOAD: advise_offload(c, a); break;
  case ADVICE_TILING: advise_tiling(c, a); break;
  case ADVICE_LAYER: advise_layer(c, a); break;
  case ADVICE_NODE_ALIKE: advise_alike(c, a); break;
  case ADVICE_NODE_PP: judge(c, LIST(STRATEGY_PP, STRATEGY_PP_ZERO_1), a); break;
  case ADVICE_FAST:
    say(a, "a node sends %s/s. ", units_bytes(network(c)).s);
    judge(c, LIST(STRATEGY_ZERO_1, STRATEGY_ZERO_2, STRATEGY_ZERO_3, STRATEGY_HSDP, STRATEGY_THREE_D), a);
    break;
  case ADVICE_SLOW:
    say(a, "a node sends %s/s. ", units_bytes(network(c)).s);
    judge(c, LIST(STRATEGY_THREE_D), a);
    break;
  case ADVICE_TP_ACROSS: advise_across(c, a); break;
  case ADVICE_PP_ZERO: advise_pp_zero(c, a); break;
  case ADVICES: break;
  }
}

int advice_of(const Comparison *c, Advice *advice) {
  int n = 0;
  for (int rule = 0; rule < ADVICES; rule++) {
    if (!applies(c, (AdviceRule)rule)) continue;
    advice[n] = (Advice){.rule = (AdviceRule)rule};
    advise(c, &advice[n++]);
  }
  return n;
}
