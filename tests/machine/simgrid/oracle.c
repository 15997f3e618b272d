// Compares flows_run with SimGrid's network model on random flows: CM02 without its factors is plain max-min. Links
// have no latency there (it would be a weight), so a flow's latency is a sleep. Built and run by test_flows_simgrid.sh.
#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <stdio.h>
#include <stdlib.h>
#include "machines.h"
#include "machine/flows.h"

enum { CASES = 60, FLOWS = 12, LINKS = 6 };
typedef struct Case { int flows, links, link[FLOWS][LINKS]; double capacity[LINKS]; Flow flow[FLOWS]; } Case;
static Case cases[CASES];
static double ends[CASES][FLOWS];

static void draw(Random *r, Case *c) {
  c->flows = random_int(r, 1, FLOWS), c->links = random_int(r, 1, LINKS);
  for (int l = 0; l < c->links; l++) c->capacity[l] = random_int(r, 1000, 100000);
  for (int f = 0; f < c->flows; f++) {
    int used = 0;
    for (int l = 0; l < c->links; l++)
      if (random_int(r, 0, 2) == 0) c->link[f][used++] = l;
    if (!used) c->link[f][used++] = random_int(r, 0, c->links - 1);
    c->flow[f] = (Flow){.start = random_int(r, 0, 8),
                        .latency = random_int(r, 0, 3) * 0.25,
                        .bytes = random_int(r, 1000, 1000000),
                        .link = c->link[f],
                        .links = used};
  }
}

static int write_platform(const char *path) {
  FILE *out = fopen(path, "w");
  if (!out) return -1;
  fprintf(out, "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
               "<platform version=\"4.1\">\n<zone id=\"all\" routing=\"Full\">\n");
  for (int c = 0; c < CASES; c++)
    for (int f = 0; f < cases[c].flows; f++)
      fprintf(out, "<host id=\"from-%d-%d\" speed=\"1Gf\"/><host id=\"to-%d-%d\" speed=\"1Gf\"/>\n", c, f, c, f);
  for (int c = 0; c < CASES; c++)
    for (int l = 0; l < cases[c].links; l++)
      fprintf(out, "<link id=\"link-%d-%d\" bandwidth=\"%.17gBps\" latency=\"0s\"/>\n", c, l, cases[c].capacity[l]);
  for (int c = 0; c < CASES; c++)
    for (int f = 0; f < cases[c].flows; f++) {
      fprintf(out, "<route src=\"from-%d-%d\" dst=\"to-%d-%d\" symmetrical=\"NO\">", c, f, c, f);
      for (int i = 0; i < cases[c].flow[f].links; i++)
        fprintf(out, "<link_ctn id=\"link-%d-%d\"/>", c, cases[c].flow[f].link[i]);
      fprintf(out, "</route>\n");
    }
  fprintf(out, "</zone>\n</platform>\n");
  return fclose(out);
}

static void send_flow(int argc, char **argv) {
  const Flow *flow = &cases[atoi(argv[1])].flow[atoi(argv[2])];
  sg_actor_sleep_for(flow->start + flow->latency);
  sg_mailbox_put(sg_mailbox_by_name(argv[3]), argv, (long)flow->bytes);
}

static void receive_flow(int argc, char **argv) {
  sg_mailbox_get(sg_mailbox_by_name(argv[3]));
  ends[atoi(argv[1])][atoi(argv[2])] = simgrid_get_clock();
}

static void start_actors(int c, int f) {
  char number[2][16], box[40], from[40], to[40];
  snprintf(number[0], sizeof number[0], "%d", c), snprintf(number[1], sizeof number[1], "%d", f);
  snprintf(box, sizeof box, "box-%d-%d", c, f), snprintf(from, sizeof from, "from-%d-%d", c, f);
  snprintf(to, sizeof to, "to-%d-%d", c, f);
  const char *arguments[] = {"flow", number[0], number[1], box};
  sg_actor_create_("send", sg_host_by_name(from), send_flow, 4, arguments);
  sg_actor_create_("receive", sg_host_by_name(to), receive_flow, 4, arguments);
}

int main(int argc, char **argv) {
  Random r = {philox_key(11, 0, 0)};
  simgrid_init(&argc, argv);
  for (int c = 0; c < CASES; c++) draw(&r, &cases[c]);
  if (argc < 2 || write_platform(argv[1])) return fprintf(stderr, "cannot write the platform\n"), 1;
  simgrid_load_platform(argv[1]);
  for (int c = 0; c < CASES; c++)
    for (int f = 0; f < cases[c].flows; f++) start_actors(c, f);
  simgrid_run();
  double worst = 0;
  int flows = 0;
  for (int c = 0; c < CASES; c++) {
    flows_run(cases[c].flow, cases[c].flows, cases[c].capacity, cases[c].links);
    for (int f = 0; f < cases[c].flows; f++, flows++)
      worst = fmax(worst, fabs(cases[c].flow[f].end / ends[c][f] - 1));
  }
  printf("%d flows in %d networks: ends differ from SimGrid's by %.2g of them at most\n", flows, CASES, worst);
  return worst < 1e-5 ? 0 : 1;
}
