// The world of the ranks that a launcher has started.
#include "base/endpoint.h"
#include "base/fault.h"
#include "base/node_list.h"
#include "comm/launcher.h"
#include "comm/net.h"
#include "net/secret.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT = 29500, JOB_PORTS = 2000 }; // as torchrun's; a job without MASTER_PORT takes one of those after it

static const char *first_of(const char *const *names) {
  for (; *names; names++)
    if (getenv(*names) && *getenv(*names)) return getenv(*names);
  return NULL;
}

// Tells the runs apart that may look at the same port. A launcher's round of restarts is another run.
static void name_run(char *id, size_t size) {
  static const char *const jobs[] = {"PLAIT_RUN_ID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "PMI_ID_JOB",
                                     "SLURM_JOB_ID", NULL};
  const char *job = first_of(jobs), *step = getenv("SLURM_STEP_ID"), *round = getenv("TORCHELASTIC_RESTART_COUNT");
  snprintf(id, size, "%s.%s.%s", job ? job : "", step ? step : "", round ? round : "");
}

static int port_of_job(const char *id) {
  unsigned sum = 5381;
  for (const char *c = id; *c; c++) sum = sum * 33 + (unsigned char)*c;
  return PORT + 1 + (int)(sum % JOB_PORTS);
}

// Slurm's rank 0 is on the first machine of its step.
static int find_slurm_host(char host[static NODE_NAME_MOST + 1], Error *error) {
  static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", NULL};
  NodeList nodes;
  const char *text = first_of(lists);
  if (!text) return 0;
  int code = node_list_parse("SLURM_STEP_NODELIST", text, &nodes, error);
  if (code) return code;
  snprintf(host, NODE_NAME_MOST + 1, "%s", nodes.name[FAULT(another_node, 0, nodes.count - 1)]);
  node_list_free(&nodes);
  return 1;
}

static int check_master(const char *master, char host[static NODE_NAME_MOST + 1], Error *error) {
  Endpoint e;
  if (!endpoint_parse(master, strlen(master), false, &e) || strlen(e.host) > NODE_NAME_MOST)
    return error_set(error, PLAIT_BAD_INPUT, "MASTER_ADDR is \"%.100s\"; it must be the name or the address of the "
                     "machine of rank 0", master);
  if (e.port)
    return error_set(error, PLAIT_BAD_INPUT, "MASTER_ADDR is \"%.100s\"; give the port in MASTER_PORT, as in "
                     "MASTER_ADDR=%s MASTER_PORT=%d", master, e.host, e.port);
  snprintf(host, NODE_NAME_MOST + 1, "%s", e.host);
  return PLAIT_OK;
}

// All on one machine need no address, whatever name the launcher has for it.
static int find_host(const Launcher *l, char host[static NODE_NAME_MOST + 1], Error *error) {
  const char *master = getenv("MASTER_ADDR");
  int one_machine = l->tasks == 1 || (l->local && l->local == l->tasks);
  snprintf(host, NODE_NAME_MOST + 1, "%s", one_machine || !master || !*master ? "127.0.0.1" : master);
  if (!one_machine && master && *master) return check_master(master, host, error);
  if (one_machine || !l->mpi) return PLAIT_OK;
  int found = strncmp(l->variable, "SLURM", 5) ? 0 : find_slurm_host(host, error);
  if (found) return found < 0 ? found : PLAIT_OK;
  return error_set_about(
      error, PLAIT_BAD_INPUT, &(ErrorFacts){.key = "run.comm"},
      "run.comm: net: %s says that there are %d tasks, perhaps on several machines; set MASTER_ADDR to the "
      "name of the machine of rank 0 (127.0.0.1 where there is only one)",
      l->variable, l->tasks);
}

static int find_port(int *port, const Launcher *l, const char *id, Error *error) {
  const char *text = getenv("MASTER_PORT");
  char *end = NULL;
  long value = text && *text ? strtol(text, &end, 10) : 0;
  if (text && *text && (*end || value < 1 || value > 65000))
    return error_set(error, PLAIT_BAD_INPUT, "MASTER_PORT is \"%.40s\"; it must be a number from 1 to 65000", text);
  *port = value ? (int)value : l->mpi ? port_of_job(id) : PORT;
  if (value && getenv("TORCHELASTIC_RUN_ID")) ++*port; // that one is torchrun's store
  return PLAIT_OK;
}

static int create_net(double silence, NetWireChoice wire, PlaitWorld **world, Error *error) {
  Launcher l = launcher_find();
  char id[256], host[NODE_NAME_MOST + 1] = "127.0.0.1", said[80];
  NetOptions options = {.silence = silence, .wire = wire, .ranks = 1, .id = id, .host = host};
  name_run(id, sizeof id);
  if (!l.variable) return net_world_create(&options, world, error); // by hand: one rank, at any port
  int code = find_host(&l, host, error);
  if (!code) code = find_port(&options.port, &l, id, error);
  if (code) return code;
  if (l.rank < 0 || l.tasks <= 0)
    return error_set(error, PLAIT_BAD_INPUT, "%s is set, but not the rank of this process", l.variable);
  options.rank = l.rank;
  options.ranks = l.tasks;
  const char *nodes = getenv("SLURM_STEP_NUM_NODES");
  options.several = l.local ? l.local < l.tasks : !strncmp(l.variable, "SLURM", 5) && nodes && atoi(nodes) > 1;
  snprintf(said, sizeof said, "%s says %d tasks", l.variable, l.tasks);
  options.said = said;
  return net_world_create(&options, world, error);
}

static int create_mpi(PlaitWorld **world, Error *error) {
  if (FAULT(mpi_says_it_encrypts, !secret_encrypts(), true)) return plait_world_mpi_create(world, error);
  return error_set(error, PLAIT_BAD_INPUT, "PLAIT_ENCRYPT is 1, but MPI carries what these ranks say, and plait cannot "
                   "make it encrypt that; start them by plait launch --encrypt, or with run.comm: net");
}

// Where MPI sees tasks each by itself, net still finds them together.
static int create_auto(double silence, NetWireChoice wire, PlaitWorld **world, Error *error) {
  Launcher l = launcher_find();
  char version[1 << 14];
  int has_mpi = launcher_mpi_version(version) != NULL;
  if (!has_mpi || !l.mpi) return create_net(silence, wire, world, error);
  int code = create_mpi(world, error);
  if (code != PLAIT_BAD_INPUT || l.tasks <= 1 || l.rank < 0) return code;
  Error net = {0};
  code = create_net(silence, wire, world, &net);
  if (code != PLAIT_BAD_INPUT) *error = net; // else MPI's sentence says more
  return code;
}

int world_launched_create(WorldKind kind, double silence, NetWireChoice wire, PlaitWorld **world, Error *error) {
  *world = NULL;
  int code = launcher_check(error);
  if (code) return code;
  if (kind == WORLD_MPI) return create_mpi(world, error);
  return kind == WORLD_NET ? create_net(silence, wire, world, error) : create_auto(silence, wire, world, error);
}

int plait_world_launched_create(PlaitWorld **world, PlaitError *error) {
  return world_launched_create(WORLD_AUTO, 0, NET_WIRE_AUTO, world, error);
}

int plait_world_net_create(int rank, int ranks, const char *host, int port, const char *id, PlaitWorld **world,
                           PlaitError *error) {
  return net_world_create(&(NetOptions){.rank = rank, .ranks = ranks, .host = host ? host : "127.0.0.1", .port = port,
                                        .id = id ? id : ""},
                          world, error);
}
