// The calls that a rank issues in a step, in its order: collectives, waits for those in flight, and messages between
// stages. The executor tells it (runtime/issued.h), and the simulator tells it (machine/simulate.h): by the same hash,
// so that the simulation can be compared with the run. Ranks compare theirs by this hash too (runtime/desync.h).
#pragma once
#include "program/program.h"

typedef enum CallKind { CALL_COLLECTIVE, CALL_LANDED, CALL_SEND, CALL_RECV } CallKind;
enum { CALL_ALONE = -1 }; // in the place of a stream: the rank does nothing else meanwhile
enum { CALL_BYTES_VARY = -1 };

typedef struct Call {
  CallKind kind;
  int stream;       // of a collective: collective_stream where it is in flight, else CALL_ALONE
  const Node *node; // of a collective, and where one has landed
  int tensor;       // of a message
  int microbatch;   // of its step; -1 in BEGIN and END
  int peer, direction; // of a message: the coordinate of the other rank; 1 towards later stages
  int64_t bytes;    // of a message; of the whole tensor of a collective (collective_whole_bytes)
  int64_t offset;   // of a message's buffer, into the rank's working memory
} Call;

// All of a call; texts of nodes and tensors are the Program's.
uint64_t call_hash(const Program *p, const Call *call);
// "all_reduce of grad.layer.0.dw in flight, microbatch 2, 4096 bytes".
void call_text(const Program *p, const Call *call, char *text, size_t size);
// Whether the bytes depend on the data (rows of experts), or only ranks that own something make the call. Of such a
// collective the order alone is compared: bytes are CALL_BYTES_VARY.
int call_bytes_vary(const Program *p, const Node *n);

// A rank has a communication stream for each axis of the mesh. Calls on one take place one after the other, in the
// order of issue; those on different streams side by side. A collective takes that of its outermost axis, whose links
// are the slowest; over the stages it takes the pipeline's.
int collective_stream(const Mesh *mesh, const Node *n);

typedef struct CallLog {
  const Program *program;
  uint64_t chain;   // of all calls so far
  Vec(Call) call;
} CallLog;
// Leaves out collectives of a single rank, and where those have landed of which call_bytes_vary: who left the
// collective to others does not wait for it.
void calls_note(CallLog *log, Call call);
void calls_free(CallLog *log);
// Index of the first call in which two logs of one Program differ; -1: they are equal.
int calls_differ(const CallLog *a, const CallLog *b);
