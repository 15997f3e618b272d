// Signals that ask for an orderly end (signals.def): a flag that loops poll. A second SIGINT ends the process at once.
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef enum SignalAction { SIGNAL_STOP, SIGNAL_REPEAT, SIGNAL_IGNORE } SignalAction; // see signals.def
typedef enum SignalStatus { SIGNAL_NUMBER, SIGNAL_AGAIN } SignalStatus;

// Installs the handlers, and ignores what signals.def says, so that writes report EPIPE and EFBIG. A signal that the
// process has inherited as ignored stays so (nohup; background jobs of scripts and SIGINT). `announcement` is what the
// first signal prints on stderr at once, after its name; static storage. NULL prints nothing.
void signals_install(const char *announcement);
// Who asks, where a program sends signals for somebody else: what `words` returns is printed in place of the signal's
// name and the announcement; NULL: these. Called in the handler, so it may do only what a handler may. NULL: nobody.
void signals_reword(const char *(*words)(void));
bool signals_stop(void);              // a signal has come; cheap, any thread
int signals_number(void);             // which one, 0 if none
bool signals_take(int number);        // if this one has come, it is forgotten: it has ended what it should
const char *signals_name(int number); // "SIGTERM"; "a signal" if it is not in signals.def
int signals_status_of(int number);    // exit status of a command that this signal has stopped: 75, or 128 + its number
// Whether a command that one of the signals that ask for an end has stopped may end with this status.
bool signals_is_status(int status);
bool signals_second_ends(int number); // a second one of this signal ends the process at once
// The signals that ask for an end, in the order of signals.def: their numbers go to `numbers`. Returns how many.
enum { SIGNALS_MOST = 16 };
int signals_that_stop(int numbers[SIGNALS_MOST]);
int signals_exit_status(void);        // the same for the signal that has come; 0 if none has
void signals_request_stop(int number); // as if the signal had come (another rank has it), without the announcement
// The names of the signals with an action, as in "SIGINT, SIGTERM".
void signals_list(SignalAction action, char *text, size_t size);
