// Half by hand: a user's options, checked, and the job that they and the graph are compiled to. graph_training.c runs
// it, graph_search.c simulates it.
#pragma once
#include "api/graph_build.h"

// A graph and what is asked for. It borrows both, the mesh and the plan.
typedef struct ApiGraphSetup {
  const PlaitGraph *graph;
  PlaitTrainingOptions options; // with what their plan says
  int microbatches;
  ApiGraphMesh *at;
  Vec(ApiGraphAnnotation) annotation; // the graph's, and the plan's
} ApiGraphSetup;

// Checks a graph: its building calls, its loss, and that each parameter is trained.
int api_graph_check_graph(const PlaitGraph *graph, Error *error);
// Checks all, and reads the mesh into `at`, which lives as long as what is compiled from it. options may be NULL.
// PLAIT_BAD_INPUT with one sentence; else api_graph_setup_free.
int api_graph_setup(const PlaitGraph *graph, const PlaitTrainingOptions *options, ApiGraphMesh *at,
                    ApiGraphSetup *setup, Error *error);
void api_graph_setup_free(ApiGraphSetup *setup);

// Where a training runs: options.backend, else PLAIT_BACKEND, else the CPU; and whether this process can compute there.
// Errors: PLAIT_BAD_INPUT for an unknown name, PLAIT_INFEASIBLE where this machine lacks the device.
int api_graph_device(const PlaitTrainingOptions *options, const Device **device, Error *error);

// Reads "pp=2 dp=2 tp=2"; pp and dp are added where they are missing. PLAIT_BAD_INPUT: the text is not a mesh.
int api_graph_read_mesh(ApiGraphMesh *at, const char *text, Error *error);

// Compiles the training step for a device and, with `forward`, the graph as plait_training_forward runs it. The caller
// destroys the job, also after an error. PLAIT_INFEASIBLE: a cut that does not divide.
int api_graph_compile(const ApiGraphSetup *setup, const Device *device, int forward, Job **job, Error *error);
