// GnuTLS, which is loaded when a secret is used first: TLS 1.3 by a pre-shared key.
#pragma once
#include "net/secret.h"
#include <sys/types.h>

typedef struct Tls Tls;

int tls_check(Error *error); // PLAIT_BAD_INPUT: plait was built without GnuTLS, or it cannot be loaded
// One end of a connection over a socket that does not block, whose owner the caller stays. NULL: out of memory.
Tls *tls_open(int fd, bool is_server, const Secret *secret);
// 1: both sides have proved the secret; 0: more has to come or go; -1: by errno, EPROTO: the other has not got it, or
// is not TLS; ECONNRESET: it has ended the connection, which says neither.
int tls_handshake(Tls *tls);
// As recv and send of a socket that does not block: errno is EAGAIN, or something else when the connection is broken.
ssize_t tls_receive(Tls *tls, void *data, size_t bytes);
ssize_t tls_send(Tls *tls, const void *data, size_t bytes);
void tls_close(Tls *tls);           // NULL is fine
