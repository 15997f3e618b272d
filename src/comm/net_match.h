// Which message goes into which receive. Messages that have come and nobody has asked for yet, and receives for which
// no message has come, wait in two tables. A receive takes the message of its tag that came first, a message the
// receive that was posted first, whether that names the sender or takes any. No memory is allocated here: whoever
// calls owns the entries.
#pragma once
#include <stdint.h>

enum { MATCH_ANY = -1, MATCH_LISTS = 256 };

typedef struct MatchEntry {
  struct MatchEntry *next, *before; // in its list
  struct MatchList *list;           // NULL: it does not wait
  uint64_t tag;
  int sender; // MATCH_ANY: a receive from any rank
  int kind;   // the caller's
} MatchEntry;

typedef struct MatchList { MatchEntry *first, *last; } MatchList;

// All zero: both tables are empty.
typedef struct Match { MatchList receives[MATCH_LISTS], messages[MATCH_LISTS]; } Match;

// The message that this receive takes, which waits no more; NULL: there is none, and the receive waits.
MatchEntry *match_receive(Match *match, MatchEntry *receive);
// The receive that takes a message of this tag and sender, which waits no more; NULL: there is none.
MatchEntry *match_message(Match *match, uint64_t tag, int sender);
void match_keep(Match *match, MatchEntry *message); // one that match_message has no receive for: it waits
void match_forget(MatchEntry *entry);               // of either table; nothing happens if it does not wait
