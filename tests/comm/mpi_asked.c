// Stands before MPI's functions that move messages, in a program whose build has PLAIT_MPI for this file.
#include "mpi_asked.h"
#include "base/error.h"
#include "comm/process.h"
#include <string.h>
#ifdef PLAIT_MPI
#include <mpi.h>
#endif

typedef struct Asked { uint64_t context; double sent, received; } Asked; // of MPI; under the world's lock
static Asked asked[256];
static int asked_count;

#ifdef PLAIT_MPI
static void note(MPI_Comm comm, int count, MPI_Datatype type, int receives) {
  uint64_t context = 0;
  int size, i = 0;
  memcpy(&context, &comm, sizeof comm);
  PMPI_Type_size(type, &size);
  while (i < asked_count && asked[i].context != context) i++;
  CHECK(i < (int)(sizeof asked / sizeof *asked));
  if (i == asked_count) asked[asked_count++].context = context;
  *(receives ? &asked[i].received : &asked[i].sent) += (double)count * size;
}
int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
  note(comm, count, type, 0);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Issend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
  note(comm, count, type, 0);
  return PMPI_Issend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
  note(comm, count, type, 1);
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
#endif

void mpi_asked_check(const PlaitComm *comm, int rank) {
  const ProcessComm *c = (const ProcessComm *)comm;
  double sent = 0, received = 0;
  for (int p = 0; p < plait_comm_size(comm); p++) {
    ProcessCount count = process_count(comm, p);
    sent += (double)(count.sent + count.headers_sent);
    received += (double)(count.received + count.headers_received);
  }
  for (int i = 0; i < asked_count; i++)
    if (asked[i].context == c->context.handle) {
      CHECK(asked[i].sent == sent && asked[i].received == received,
            "rank %d: MPI was asked to send %.0f bytes and to receive %.0f; counted were %.0f and %.0f", rank,
            asked[i].sent, asked[i].received, sent, received);
      return;
    }
  CHECK(!sent && !received, "rank %d: MPI knows nothing of a communicator that has sent %.0f bytes", rank, sent);
}
