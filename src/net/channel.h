// A connection between processes of a job: TLS by the secret that the user gave, or plain after both sides have proved
// to have the secret that plait launch drew, or plain where there is none. Nothing here blocks but what has a deadline.
#pragma once
#include "net/secret.h"
#include <sys/types.h>

typedef struct Channel Channel;

// Takes over a socket, made non-blocking. secret (copied): see net/secret.h; NULL: plain, and nobody proves anything.
// NULL, and the socket is closed: out of memory.
Channel *channel_open(int fd, bool is_server, const Secret *secret);
void channel_close(Channel *channel); // NULL is fine
int channel_release(Channel *channel); // a plain one: frees it, and gives the socket back
int channel_fd(const Channel *channel);

// 1: it can be used; 0: call this again when more has come (channel_waits_for); -1: by errno, EPROTO: the other side
// does not have the secret; ECONNRESET: it has ended the connection.
int channel_greet(Channel *channel);
short channel_waits_for(const Channel *channel); // poll's event, until it can be used
// After channel_greet was -1, or channel_meet 0, with their errno: what is wrong with the other side, as in "what
// listens at hostA:1 " "does not have the secret of this job".
const char *channel_reason(const Channel *channel);
// As recv and send of a socket that does not block: errno is EAGAIN, or something else when the connection is broken.
ssize_t channel_receive(Channel *channel, void *data, size_t bytes);
ssize_t channel_send(Channel *channel, const void *data, size_t bytes);

// By the deadline of clock_seconds(), or 0. All the bytes.
int channel_meet(Channel *channel, double deadline); // channel_greet to its end; its errno, or ETIMEDOUT
int channel_read(Channel *channel, void *data, size_t bytes, double deadline);
int channel_write(Channel *channel, const void *data, size_t bytes, double deadline);
