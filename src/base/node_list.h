// Lists of machines as Slurm writes them: "n[01-03,7],m5" is n01, n02, n03, n7 and m5.
#pragma once
#include "base/error.h"

enum { NODE_LIST_MOST = 65536, NODE_NAME_MOST = 255 };

typedef struct NodeList { char **name; int count; } NodeList;

// All names in the order of the list; a name may have several brackets, of which the last varies fastest. Numbers are
// as wide as the first one of their range. PLAIT_BAD_INPUT where the text is not such a list, or has more than
// NODE_LIST_MOST names; the list is empty then. `what` names the text in messages, as in "SLURM_JOB_NODELIST".
int node_list_parse(const char *what, const char *text, NodeList *list, Error *error);
void node_list_free(NodeList *list); // safe on a zeroed one
