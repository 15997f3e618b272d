// The system's limit on open files (RLIMIT_NOFILE), which connections count towards.
#pragma once

// Raises the limit to the highest that this process may set, which programs that it starts inherit. Returns the limit,
// at most 2^20.
int descriptors_raise(void);
