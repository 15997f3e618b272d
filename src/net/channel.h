// A connection between processes of a job, plain or TLS. Nothing here blocks but what has a deadline.
#pragma once
#include "net/secret.h"
#include <sys/types.h>

typedef struct Channel Channel;

// Takes over a socket, made non-blocking. secret NULL: plain. NULL, and the socket is closed: out of memory.
Channel *channel_open(int fd, bool is_server, const Secret *secret);
void channel_close(Channel *channel); // NULL is fine
int channel_release(Channel *channel); // a plain one: frees it, and gives the socket back
int channel_fd(const Channel *channel);

// 1: it can be used; 0: call this again when more has come; -1: by errno, EPROTO: the other side does not have the
// secret; ECONNRESET: it has ended the connection.
int channel_greet(Channel *channel);
// As recv and send of a socket that does not block: errno is EAGAIN, or something else when the connection is broken.
ssize_t channel_receive(Channel *channel, void *data, size_t bytes);
ssize_t channel_send(Channel *channel, const void *data, size_t bytes);
bool channel_has_more(const Channel *channel); // bytes have come of which poll does not know

// By the deadline of clock_seconds(), or 0. All the bytes.
int channel_meet(Channel *channel, double deadline); // channel_greet to its end; its errno, or ETIMEDOUT
int channel_read(Channel *channel, void *data, size_t bytes, double deadline);
int channel_write(Channel *channel, const void *data, size_t bytes, double deadline);
