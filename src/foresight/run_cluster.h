// The cluster by whose seconds a run cuts its layers into pipeline stages.
#pragma once
#include "machine/cluster.h"
#include "recipe/recipe.h"
#include "runtime/launch.h"

// Where ranks are processes and run.cluster decides which layers a stage has: every rank gets rank 0's file, since
// files of one name, and measurements (probe), may differ between machines, and then so would the stages. Sets
// recipe->cluster to
// *cluster, which the caller frees after the run; else *cluster is NULL. Returns the same on all ranks.
int run_cluster(Recipe *recipe, const Launch *launch, Cluster **cluster, Error *error);
