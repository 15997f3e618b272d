// Time and memory of a step of a user's graph on a cluster: compiled as a training compiles it, and simulated.
#pragma once
#include "api/graph_compile.h"
#include "foresight/predict.h"

// It must not be moved: the job has names of the mesh.
typedef struct GraphPrediction {
  ApiGraphMesh at;
  Prediction by; // job, simulation, bytes and room are set; recipe is unused
} GraphPrediction;

// PLAIT_BAD_INPUT, PLAIT_INFEASIBLE: as plait_training_create and simulate. graph_prediction_free in any case.
int graph_predict(const PlaitGraph *graph, const PlaitTrainingOptions *options, const Cluster *cluster,
                  GraphPrediction *out, Error *error);
void graph_prediction_free(GraphPrediction *prediction);
