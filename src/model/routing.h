// Which experts each token goes to, for all families that have some.
#pragma once
#include "model/build.h"

// logits (b, s, x), a product with the router's parameter → weights (b, s, x) of the chosen experts, and the mask
// (b, s, x) by which tokens are sent to them. In a training graph with the router's losses, measurements and the
// capacity of experts; with the bias of loss-free balancing where ModelOptions ask for it.
void build_routing(ModelBuild *m, int logits, const RouteAttr *attr, int *weights, int *mask);
