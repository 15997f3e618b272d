// A name of what draws the tokens: the same name, the same tokens for the same request.
#pragma once
#include "infer/inference.h"

// "plait-" and 16 digits: a hash of the weights' files (their names, sizes, and samples of each), the mesh, the
// precision, the level of the kernels and plait's version.
void fingerprint_of(const Inference *model, char text[40]);
