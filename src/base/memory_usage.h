// Resident memory of this process, as Linux reports it.
#pragma once
#include <stdint.h>

// Bytes of resident anonymous memory (RssAnon of /proc/self/status); -1 where it cannot be read. Allocates nothing.
int64_t memory_usage_anonymous(void);
// Bytes of memory that the machine says is available (MemAvailable), -1 where unknown.
int64_t memory_usage_available(void);
