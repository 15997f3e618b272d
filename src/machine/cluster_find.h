// Where cluster files lie that come with plait.
#pragma once
#include "base/error.h"

typedef struct ClusterList { char **names; int count; } ClusterList; // sorted, without .yaml

ClusterList cluster_list(void);
void cluster_list_free(ClusterList *list);

// The file that a path or the name of a shipped cluster means; the caller frees *path. PLAIT_BAD_INPUT with the nearest
// name.
int cluster_find(const char *name, char **path, Error *error);
