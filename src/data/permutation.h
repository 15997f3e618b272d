// A keyed permutation of [0, n) that is evaluated at one point in O(1), without a table.
//
// A Feistel network over Z_a × Z_b with a·b just above n, and cycle walking for the few values that land at n or above:
// Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002; the round function is Philox.
#pragma once
#include "base/philox.h"
#include <stdint.h>

// The image of i; n in [1, 2^62], i in [0, n). The same on every machine.
int64_t permutation(PhiloxKey key, int64_t n, int64_t i);
