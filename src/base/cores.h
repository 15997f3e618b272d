// The cores that this process may use.
#pragma once

int cores_available(void); // its CPU affinity, at least 1
