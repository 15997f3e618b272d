// The memory that the process uses and may still take, from /proc and the control groups of the process.
#pragma once
#include <stdint.h>

int64_t memory_usage_anonymous(void); // resident anonymous bytes of this process, -1 if unknown

typedef struct MemoryAvailable {
  int64_t bytes; // that can be had without swapping, -1 if unknown
  int64_t limit; // of the control group of which the least is left, where there is one that has a limit; else 0
  char why[160]; // "", or " under the limit of 2.00 GB of control group /x" where it leaves less than the machine
} MemoryAvailable;

// root: see control_group_find; "" is the machine.
MemoryAvailable memory_usage_available_in(const char *root);
int64_t memory_usage_available(void); // its bytes on the machine
