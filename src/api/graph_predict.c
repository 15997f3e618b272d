// Time and memory of a step of a user's graph on a cluster.
#include "api/graph_predict.h"
#include "machine/devices.h"

int graph_predict(const PlaitGraph *h, const PlaitTrainingOptions *options, const Cluster *cluster,
                  GraphPrediction *out, Error *error) {
  ApiGraphSetup setup;
  SimulateOptions simulated = {.cluster = cluster};
  *out = (GraphPrediction){.by = {.room = 0}};
  int code = api_graph_setup(h, options, &out->at, &setup, error);
  if (code) return code;
  code = api_graph_compile(&setup, predict_device(cluster), 0, &out->by.job, error);
  api_graph_setup_free(&setup);
  if (code) return code;
  out->by.bytes = predict_bytes(out->by.job);
  out->by.room = devices_room(cluster, out->at.mesh.ranks, NULL, 0);
  return simulate(job_train(out->by.job)->program, &simulated, &out->by.simulation, error);
}

void graph_prediction_free(GraphPrediction *p) { prediction_free(&p->by); }
