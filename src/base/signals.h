// SIGINT and SIGTERM ask for an orderly end: a flag that loops poll. A second signal ends the process at once.
#pragma once
#include <stdbool.h>

void signals_install(void);   // also ignores SIGPIPE and SIGXFSZ, so that writes report EPIPE and EFBIG
bool signals_stop(void);      // a signal has come; cheap, any thread
int signals_number(void);     // which one, 0 if none
void signals_request_stop(int number); // as if the signal had come (tests, or a loop that ends itself)
