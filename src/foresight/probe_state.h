// A probe at work: for foresight/probe*.c.
#pragma once
#include "model/example.h"
#include "foresight/probe.h"
#include "foresight/probe_run.h"

// One block of a model, as probe_shapes.def lists them.
typedef struct ProbeShape {
  ModelExample example;
  int width, heads, sequence, sequences, microbatches, vocabulary;
  const char *recompute;
  AxisId axis;
  int quick;
} ProbeShape;

// A number of ranks, each with this number of threads, that run at the same time.
typedef struct Crew { int ranks, threads; } Crew;
enum { MOST_CREWS = 16 };

typedef struct Probe {
  const ProbeOptions *options;
  char folder[512];         // of token files
  Crew crew[MOST_CREWS];
  int crews, cores, runs, of; // cores: of this machine, of whose ranks there are
  PlaitComm *comm;          // of ranks that are processes; NULL: they are threads
  int local, nodes;         // of them on one machine; machines
  Dtype dtype[2];
  int dtypes;
  double end;
  ProbeTimes times;
  double cache;                // bytes
  double helping;              // see DeviceFacts, until it is measured
  Vec(double) skew;            // estimates of the spread
  double beside, instructions; // seconds of steps beside their kernels and collectives; number of instructions
} Probe;

extern const ProbeShape probe_shapes[];
extern const int probe_shape_count;

// Token files of random text for a vocabulary, in the probe's folder, if they are not there.
int probe_corpus(const Probe *p, int vocabulary, Error *error);
// The recipe of a shape on a crew; `more`: keys that override it. The caller frees it.
int probe_recipe(const Probe *p, const ProbeShape *shape, Crew crew, Dtype dtype, Recipe *recipe, int count,
                 char **more, Error *error);
// Runs a shape, or the recipe that was asked for, on a crew, and adds what its kernels took to p->times.
int probe_shape_run(Probe *p, const ProbeShape *shape, Crew crew, Dtype dtype, Error *error);
int probe_recipe_run(Probe *p, Crew crew, int microbatches, Error *error);

double probe_last_cache(void); // bytes of the last level of cache that a core has; 0: not told
// The measurements as facts of a cluster, and the gain of threads of other ranks that help.
void probe_describe(Probe *p, Cluster *c);
int probe_helping(Probe *p, Cluster *c, Error *error);
