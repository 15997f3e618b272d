// Numbers for people: bytes, counts, durations. Each writes into the caller's buffer and returns it.
#pragma once
#include <stdint.h>

typedef struct UnitText { char s[32]; } UnitText; // by value: units_bytes(n).s

UnitText units_bytes(double bytes);     // "312 B" "1.5 kB" "2.25 GB": powers of 1000, three digits
UnitText units_count(double count);     // "17" "18.2k" "1.42M" "6.9B"
UnitText units_flops(double per_second); // "113 GFLOP/s"
UnitText units_duration(double seconds); // "850 ms" "12.3 s" "4m 05s" "2h 07m" "3d 04h"; "?" where not finite
UnitText units_seconds(
    double seconds); // of a prediction, three digits: "0 s" "850 us" "1.23 ms" "41.2 s"; from a minute on as a duration
