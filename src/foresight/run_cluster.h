// The cluster by whose seconds a run cuts its layers into pipeline stages.
#pragma once
#include "machine/cluster.h"
#include "recipe/recipe.h"
#include "runtime/launch.h"

// Where ranks are processes and run.cluster decides which layers a stage has: every rank gets rank 0's file, since
// files of one name, and measurements (probe), may differ between machines, and then so would the stages. The caller
// frees *cluster; NULL: each rank may ask its own. Returns the same on all ranks.
int run_cluster(const Recipe *recipe, const Launch *launch, Cluster **cluster, Error *error);
