// Simulated steps, for claims about time.
#include "foresight/claims_count.h"
#include "foresight/predict.h"

static int predicted(const ClaimRun *run, Prediction *prediction, Error *error) {
  Cluster *cluster = NULL;
  int code = predict_cluster(&run->recipe, NULL, &cluster, error);
  SimulateOptions options = {.cluster = cluster};
  if (!code) code = predict(&run->recipe, &run->config, &options, prediction, error);
  cluster_free(cluster);
  return code;
}

int claim_step_seconds(const ClaimRun *run, double *number, Error *error) {
  Prediction prediction;
  int code = predicted(run, &prediction, error);
  if (code) return code;
  *number = prediction.simulation->step;
  prediction_free(&prediction);
  return PLAIT_OK;
}

int claim_utilisation(const ClaimRun *run, double *number, Error *error) {
  Prediction prediction;
  int code = predicted(run, &prediction, error);
  if (code) return code;
  *number = 100 * prediction.mfu;
  prediction_free(&prediction);
  return PLAIT_OK;
}
