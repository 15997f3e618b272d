// Names that users of plait/graph.h have given. A parameter of theirs is a Variable whose name begins so that it cannot
// be taken for one of plait's own; sentences have the name without that.
#pragma once
#include <string.h>

#define USER_PARAMETER "parameter."

// "w" of "parameter.w"; any other name as it is.
static inline const char *user_name(const char *name) {
  size_t prefix = sizeof USER_PARAMETER - 1;
  return strncmp(name, USER_PARAMETER, prefix) ? name : name + prefix;
}
